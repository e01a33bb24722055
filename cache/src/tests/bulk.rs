//! Bulk writes. The volume panics if more is claimed than is reserved.

use std::sync::Arc;

use super::cache;
use crate::BulkWriter;
use crate::testing::{OPS, Op, Volume};

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at as u64 + seed * 7) % 251) as u8).collect()
}

/// Files of two groups, with claims that are shorter than a file.
#[test]
fn files_are_written_with_few_device_writes_and_all_reservations_are_released() {
    for longest_claim in [3, u64::MAX] {
        let volume = Volume::new(12, 500).with_longest_claim(longest_claim);
        let volume_cache = cache(&volume, 16 << 20);
        let mut writer = BulkWriter::<Volume, Arc<u64>>::new(&volume_cache);
        let inos = || (1..10u64).chain((1 << 20)..(1 << 20) + 10);
        for ino in inos() {
            writer.put(Arc::new(ino), 0, bytes(ino, 8192), || Ok(false)).unwrap();
            writer.put(Arc::new(ino), 8192, bytes(ino + 1, 5000), || Ok(false)).unwrap();
        }
        writer.finish().unwrap();
        if longest_claim == u64::MAX {
            assert!(volume.writes() <= 2, "{}", volume.writes());
        }
        for ino in inos() {
            let wanted = [bytes(ino, 8192), bytes(ino + 1, 5000)].concat();
            assert!(volume.contents(&volume.on_disk(ino)) == wanted, "file {ino}");
        }
        drop(writer);
        volume.check_quiet();
    }
}

#[test]
fn a_failure_of_any_call_leaves_no_claim_and_no_reservation() {
    for (op, longest_claim) in OPS.into_iter().flat_map(|op| [(op, 2), (op, 3), (op, u64::MAX)]) {
        for after in 0..12 {
            let volume = Volume::new(12, 60).with_longest_claim(longest_claim);
            let volume_cache = cache(&volume, 16 << 20);
            let mut writer = BulkWriter::<Volume, Arc<u64>>::new(&volume_cache);
            volume.fail(op, after, 1);
            let mut failed = false;
            for ino in 1..8 {
                failed |= writer.put(Arc::new(ino), 0, bytes(ino, 20_000), || Ok(false)).is_err();
            }
            failed |= writer.finish().is_err();
            assert!(!failed || op != Op::Map, "a bulk write reads no map");
            volume.heal();
            writer.put(Arc::new(9), 0, bytes(9, 20_000), || Ok(false)).unwrap();
            // Dropped with a pending write.
            drop(writer);
            volume.check_quiet();
        }
    }
}

/// On a full volume a write is finished at once, with what its own claims need.
#[test]
fn a_full_volume_takes_what_fits_and_refuses_the_rest() {
    let volume = Volume::new(12, 40);
    let volume_cache = cache(&volume, 16 << 20);
    let mut writer = BulkWriter::<Volume, Arc<u64>>::new(&volume_cache);
    let mut released = 0;
    let full = (1..).find(|ino| {
        let release = || {
            released += 1;
            Ok(true)
        };
        writer.put(Arc::new(*ino), 0, bytes(*ino, 16384), release).is_err()
    });
    let full = full.unwrap();
    assert!((8..11).contains(&full), "{full}");
    assert_eq!(released, 1);
    writer.finish().unwrap();
    for ino in 1..full {
        assert!(volume.contents(&volume.on_disk(ino)) == bytes(ino, 16384), "file {ino}");
    }
    drop(writer);
    volume.check_quiet();
}
