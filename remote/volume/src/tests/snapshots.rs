//! Snapshots and clones of volumes that are open elsewhere, and new volumes that are given up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::*;
use crate::{CloneRequest, audit, begin_clone, delete_orphans, make_snapshot, remove_snapshot, volume_info};

const PLACES: u64 = 40;

/// Write `n` goes to one of few places, with the value `n`.
fn write_next(device: &ObjectDevice, n: u64) {
    write(device, n % PLACES * 97, n);
}

/// The number of the last write that a state contains, of which it must contain all before.
fn last_write(device: &ObjectDevice) -> u64 {
    let found: Vec<u64> = (0..PLACES).map(|place| read(device, place * 97)).collect();
    let last = found.iter().copied().max().unwrap();
    for (place, value) in found.iter().enumerate() {
        let before = (0..PLACES).filter_map(|n| last.checked_sub(n)).find(|n| n % PLACES == place as u64);
        assert_eq!(*value, before.unwrap_or(0), "place {place} of the state after write {last}");
    }
    last
}

fn snapshot(store: &MemoryStore, name: &str) -> ObjectDevice {
    ObjectDevice::open_read_only(shared(store), Some(name), small(900)).unwrap()
}

/// It contained what the last checkpoint did, which may be a thousand flushes ago.
#[test]
fn a_snapshot_of_an_open_volume_contains_what_was_flushed() {
    let store = MemoryStore::default();
    make(&store, 5000, 1);
    let options = ObjectOptions { checkpoint_segments: 1000, ..small(2) };
    let device = ObjectDevice::open(shared(&store), options).unwrap();
    (1..=70).for_each(|n| write_next(&device, n));
    device.flush().unwrap();
    write_next(&device, 71);
    make_snapshot(shared(&store), "removed", 1, &small(3)).unwrap();
    assert_eq!(last_write(&snapshot(&store, "removed")), 70);
    // Its segments are still the log of the writer: they must stay when it goes.
    remove_snapshot(shared(&store), "removed", &small(4)).unwrap();
    device.checkpoint().unwrap();
    write_next(&device, 72);
    device.checkpoint().unwrap();
    assert_eq!(last_write(&ObjectDevice::open_read_only(shared(&store), None, small(5)).unwrap()), 72);
    (73..=90).for_each(|n| write_next(&device, n));
    device.flush().unwrap();
    make_snapshot(shared(&store), "flushed", 1, &small(5)).unwrap();
    assert!(volume_info(shared(&store), &small(6)).unwrap().writer.is_some());
    for n in 91..=200 {
        write_next(&device, n);
        if n % 30 == 0 {
            device.checkpoint().unwrap();
            device.clean().unwrap();
        }
    }
    assert_eq!(last_write(&snapshot(&store, "flushed")), 90);
    device.flush().unwrap();
    // A writer that was killed has the volume open, too.
    drop(device);
    make_snapshot(shared(&store), "killed", 2, &small(7)).unwrap();
    assert_eq!(last_write(&snapshot(&store, "killed")), 200);
    remove_snapshot(shared(&store), "flushed", &small(8)).unwrap();
    remove_snapshot(shared(&store), "killed", &small(9)).unwrap();
    let options = ObjectOptions { take_over: true, ..small(10) };
    let device = ObjectDevice::open(shared(&store), options).unwrap();
    assert_eq!(last_write(&device), 200);
    for n in 201..=203 {
        write_next(&device, n);
        device.checkpoint().unwrap();
    }
    device.close().unwrap();
    let found = audit(shared(&store), &small(11)).unwrap();
    assert!(found.missing.is_empty() && found.orphans.is_empty(), "{found:?}");
}

/// A writer deletes at once what it has overwritten, while snapshots are made and removed.
#[test]
fn snapshots_beside_a_writer_are_states_of_it() {
    let store = MemoryStore::default();
    make(&store, 5000, 1);
    let device = ObjectDevice::open(shared(&store), small(2)).unwrap();
    let (flushed, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !ends.load(SeqCst) {
                n += 1;
                write_next(&device, n);
                if n % 3 == 0 {
                    device.flush().unwrap();
                    flushed.store(n, SeqCst);
                }
                if n % 20 == 0 {
                    device.checkpoint().unwrap();
                    device.clean().unwrap();
                }
            }
        });
        let mut kept = Vec::new();
        for round in 0..60u64 {
            let before = flushed.load(SeqCst);
            let name = format!("s{round}");
            make_snapshot(shared(&store), &name, round, &small(1000 + round)).unwrap();
            let last = last_write(&snapshot(&store, &name));
            assert!(last >= before, "{last} of {before}");
            kept.push((name, last));
            if round % 2 == 1 {
                let (name, last) = kept.remove(round as usize % kept.len());
                assert_eq!(last_write(&snapshot(&store, &name)), last);
                remove_snapshot(shared(&store), &name, &small(2000 + round)).unwrap();
            }
        }
        ends.store(true, SeqCst);
        kept.iter().for_each(|(name, last)| assert_eq!(last_write(&snapshot(&store, name)), *last));
    });
    device.close().unwrap();
    let found = audit(shared(&store), &small(3)).unwrap();
    assert!(found.missing.is_empty(), "{found:?}");
    // A checkpoint may have come before a map that was stored for a snapshot.
    delete_orphans(shared(&store), &found, &small(4)).unwrap();
    let device = ObjectDevice::open_read_only(shared(&store), None, small(5)).unwrap();
    assert!(last_write(&device) >= flushed.load(SeqCst));
}

#[test]
fn a_clone_exists_when_it_is_finished_and_leaves_nothing_when_it_is_given_up() {
    let (parent, child) = (MemoryStore::default(), MemoryStore::default());
    make(&parent, 5000, 1);
    let device = ObjectDevice::open(shared(&parent), small(2)).unwrap();
    (1..=70).for_each(|n| write_next(&device, n));
    device.flush().unwrap();
    let stores = [parent.clone()];
    let opener: crate::Opener = Arc::new(move |_| Ok(shared(&stores[0])));
    let options = |seed| ObjectOptions { opener: Some(opener.clone()), ..small(seed) };
    let request = CloneRequest { parent: "parent", snapshot: None, url: "child", made: 1 };
    let begin = |seed| begin_clone(shared(&parent), shared(&child), request, options(seed)).unwrap();
    let pins = || volume_info(shared(&parent), &small(20)).unwrap().pins.len();
    let clone = begin(21);
    assert_eq!((last_write(clone.device()), pins()), (70, 1));
    write(clone.device(), 1, 5);
    clone.device().flush().unwrap();
    clone.abandon().unwrap();
    assert!(child.keys().is_empty() && pins() == 0, "{:?}", child.keys());
    // Two at once: the second one to finish finds the volume of the first, and its pin stays.
    let (first, second) = (begin(22), begin(23));
    write(first.device(), 1, 6);
    first.finish().unwrap();
    assert!(second.finish().is_err());
    assert_eq!(pins(), 2);
    (71..=200).for_each(|n| write_next(&device, n));
    device.close().unwrap();
    let clone = ObjectDevice::open(shared(&child), options(24)).unwrap();
    assert_eq!((last_write(&clone), read(&clone, 1)), (70, 6));
    // Without a store for its parent, a clone cannot be begun, and pins nothing.
    assert!(begin_clone(shared(&parent), shared(&MemoryStore::default()), request, small(25)).is_err());
    assert_eq!(pins(), 2);
}

#[test]
fn a_new_volume_that_is_given_up_leaves_nothing() {
    let store = MemoryStore::default();
    let create = |seed| ObjectDevice::create(shared(&store), 4 << 20, 512, small(seed)).unwrap();
    let device = create(1);
    (0..1000).for_each(|n| write(&device, n, n));
    device.flush().unwrap();
    // A long log made a checkpoint, and thereby a volume that was half built.
    while !store.keys().iter().any(|key| key.starts_with("map/")) {
        write(&device, 1, 1);
        device.flush().unwrap();
    }
    assert!(!store.keys().contains(&"head".into()));
    device.abandon().unwrap();
    assert!(store.keys().is_empty(), "{:?}", store.keys());
    assert!(device.write_at(0, &[1], Durability::Buffered).is_err());
    let device = create(2);
    device.set_size(8 << 20).unwrap();
    assert!(!store.keys().contains(&"head".into()), "a size makes no volume");
    write(&device, 2000, 7);
    device.close().unwrap();
    assert!(device.abandon().is_err(), "it exists");
    let device = ObjectDevice::open_read_only(shared(&store), None, small(3)).unwrap();
    assert_eq!((device.size(), read(&device, 2000)), (8 << 20, 7));
}

/// They were not found if their random epoch was above that of the volume.
#[test]
fn what_an_interrupted_creation_has_left_is_found() {
    let store = MemoryStore::default();
    for seed in 1..=6 {
        let device = ObjectDevice::create(shared(&store), 4 << 20, 512, small(seed)).unwrap();
        write(&device, seed, seed);
        device.flush().unwrap();
    }
    make(&store, 5000, 10);
    let device = ObjectDevice::open(shared(&store), small(11)).unwrap();
    write(&device, 1, 1);
    device.flush().unwrap();
    let found = audit(shared(&store), &small(12)).unwrap();
    assert_eq!((found.orphans.len(), found.missing.len()), (6, 0), "{found:?}");
    delete_orphans(shared(&store), &found, &small(13)).unwrap();
    assert_eq!(read(&device, 1), 1);
    device.close().unwrap();
    let found = audit(shared(&store), &small(14)).unwrap();
    assert!(found.orphans.is_empty() && found.missing.is_empty(), "{found:?}");
}
