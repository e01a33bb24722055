//! Device writes, memory, backing calls, reservations.

use std::sync::Arc;

use base::memory::Share;

use base::{FileBlock, FsBlock};

use super::{cache, file};
use crate::folio::{FOLIO_BESIDE, FOLIO_LOG};
use crate::testing::{OPS, Op, Volume};
use crate::{Cache, Edges, Options};
use backing::{Backing as _, Mapping, MappingState};

/// Returns the device writes for 512 files of 4 KiB.
fn writes_of_small_files(plug_over_pass: bool) -> (u64, u64) {
    let volume = Volume::new(12, 2000);
    let options = Options { plug_over_pass, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(16 << 20), options);
    let files: Vec<_> = (1..=512).map(|ino| file(&volume_cache, ino)).collect();
    for contents in files.iter().rev() {
        contents.write(0, &[contents.file as u8; 4096]).unwrap();
    }
    volume_cache.sync_all().unwrap();
    let statistics = volume_cache.statistics();
    assert_eq!((statistics.plug.requests, statistics.plug.bytes), (512, 512 * 4096));
    assert_eq!(statistics.plug.writes, volume.writes());
    assert!(statistics.finishes <= 32, "{statistics:?}");
    (volume.writes(), statistics.finishes)
}

#[test]
fn one_plug_over_a_pass_merges_blocks_of_different_files() {
    let (with, _) = writes_of_small_files(true);
    let (without, _) = writes_of_small_files(false);
    assert_eq!(without, 512);
    assert!(with * 15 <= without, "{with} device writes with one plug, {without} without");
}

#[test]
fn cached_data_costs_no_backing_call() {
    let volume = Volume::new(12, 2000);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    contents.write(0, &[1; 100_000]).unwrap();
    let calls = || OPS.map(|op| volume.calls(op));
    let before = calls();
    for n in 0..1000 {
        contents.write(n * 37, &[2; 4096]).unwrap();
        contents.read(n * 41, &mut [0; 4096]).unwrap();
    }
    assert_eq!(calls(), before);
    volume_cache.sync_all().unwrap();
    let before = calls();
    // Clean data is read and synced without a call.
    for n in 0..1000 {
        contents.read(n * 41, &mut [0; 4096]).unwrap();
        volume_cache.sync_all().unwrap();
    }
    assert_eq!(calls(), before);
    assert_eq!(volume_cache.statistics().passes, 1);
}

/// Writeback visited every cached folio of a file, clean ones, too: `fsync` of one block of a large file took longer
/// the more of it was cached.
#[test]
fn writeback_visits_no_clean_folio() {
    let volume = Volume::new(12, 2000);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    let write = |folio: u64| {
        contents.write(folio << FOLIO_LOG, &[1; 4096]).unwrap();
    };
    let looked_at = || {
        let mut next = 0;
        let folios = std::iter::from_fn(|| {
            let folio = contents.next_dirty_folio(next)?;
            next = folio.index + 1;
            Some(folio.index)
        });
        folios.collect::<Vec<_>>()
    };
    (0..70).for_each(write);
    contents.flush(0..u64::MAX).unwrap();
    write(30);
    contents.flush(0..u64::MAX).unwrap();
    assert_eq!(looked_at(), [30]);
    write(66);
    assert_eq!(looked_at(), [30, 66]);
    contents.flush(0..u64::MAX).unwrap();
    assert_eq!(looked_at(), [66]);
}

#[test]
fn a_small_file_takes_a_small_buffer() {
    let volume = Volume::new(12, 2000);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    let empty = volume_cache.statistics().memory_bytes + FOLIO_BESIDE;
    contents.write(0, &[1; 4096]).unwrap();
    assert_eq!(volume_cache.statistics().memory_bytes, empty + 4096);
    contents.write(4096, &[1; 1]).unwrap();
    assert_eq!(volume_cache.statistics().memory_bytes, empty + 8192);
    drop(contents);
}

/// What describes a pass of writeback, and its claims, was not counted.
#[test]
fn writes_in_flight_are_counted() {
    const RUNS: u64 = 64;
    let volume = Volume::new(12, 2000);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    for run in 0..RUNS {
        contents.write(run * 8192, &[1; 4096]).unwrap();
    }
    let before = volume_cache.statistics().memory_bytes;
    let (sender, receiver) = std::sync::mpsc::channel();
    let watched = Arc::clone(&volume_cache);
    volume.hooks().finish.set(move || sender.send(watched.statistics().memory_bytes).unwrap());
    volume_cache.sync_all().unwrap();
    let in_flight = receiver.recv().unwrap();
    assert!(in_flight >= before + RUNS * 128, "{before} bytes before, {in_flight} in flight");
    assert_eq!(volume_cache.statistics().memory_bytes, before);
}

#[test]
fn memory_stays_within_its_limit_and_reclaim_writes_nothing() {
    let volume = Volume::new(12, 4000);
    let budget = 512 << 10;
    let volume_cache = cache(&volume, budget);
    let contents = file(&volume_cache, 1);
    for n in 0..1000u64 {
        contents.write(n * 8192, &[n as u8; 8192]).unwrap();
        assert!(volume_cache.statistics().memory_bytes <= budget * 2, "{:?}", volume_cache.statistics());
    }
    volume_cache.sync_all().unwrap();
    let writes = volume.writes();
    let mut buf = vec![0; 8192];
    for n in 0..1000u64 {
        contents.read(n * 8192, &mut buf).unwrap();
        assert!(buf.iter().all(|byte| *byte == n as u8));
        let statistics = volume_cache.statistics();
        assert!(statistics.memory_bytes <= budget + (256 << 10), "{statistics:?}");
    }
    let statistics = volume_cache.statistics();
    assert_eq!(volume.writes(), writes, "dropping folios wrote");
    assert!(statistics.dropped > 200, "{statistics:?}");
    assert_eq!(statistics.plug.writes, writes, "all writes are writeback's");
}

#[test]
fn sequential_reads_get_readahead_and_random_reads_do_not() {
    let volume = Volume::new(12, 4000);
    let volume_cache = cache(&volume, 64 << 20);
    let contents = file(&volume_cache, 1);
    contents.write(0, &vec![1; 8 << 20]).unwrap();
    volume_cache.sync_all().unwrap();
    contents.invalidate(0..u64::MAX).unwrap();
    let mut buf = vec![0; 4096];
    for n in 0..2048 {
        contents.read(n * 4096, &mut buf).unwrap();
    }
    let sequential = volume_cache.statistics().reads;
    assert!(sequential < 12, "{sequential} batches for 8 MiB");
    contents.invalidate(0..u64::MAX).unwrap();
    let memory = volume_cache.statistics().memory_bytes;
    for n in 1..100 {
        contents.read((n * 37 % 128) * 65536 + 8192, &mut buf).unwrap();
    }
    let grown = volume_cache.statistics().memory_bytes - memory;
    assert!(grown <= 100 * (16384 + FOLIO_BESIDE), "{grown} bytes for 99 reads of 4096");
}

#[test]
fn files_that_grow_in_turns_get_long_runs() {
    let volume = Volume::new(12, 8000);
    let volume_cache = cache(&volume, 16 << 20);
    let files: Vec<_> = (1..=4).map(|ino| file(&volume_cache, ino)).collect();
    for _ in 0..96 {
        for contents in &files {
            contents.append(&[7; 16384]).unwrap();
            contents.flush(0..u64::MAX).unwrap();
        }
    }
    for contents in &files {
        let mut ranges = Vec::new();
        contents
            .ranges(0, contents.size(), &mut |range| {
                ranges.push(range);
                true
            })
            .unwrap();
        // Below 256 KiB each write gets its own run, interleaved with other files.
        assert!(ranges.len() <= 24, "{} ranges in a file of {} bytes", ranges.len(), contents.size());
        contents.release_preallocation();
    }
    volume_cache.sync_all().unwrap();
    volume.check_quiet();
}

#[test]
fn a_removed_file_is_not_written() {
    let volume = Volume::new(12, 1000);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    contents.write(0, &[1; 300_000]).unwrap();
    assert!(contents.is_needed());
    contents.forget();
    assert_eq!(volume_cache.statistics().dirty_bytes, 0);
    volume_cache.sync_all().unwrap();
    assert!(!contents.is_needed());
    assert_eq!(volume.writes(), 0);
    assert_eq!(volume.calls(Op::Claim), 0);
    drop(contents);
    volume.check_quiet();
    assert_eq!(volume_cache.statistics().memory_bytes, 0);
}

/// Blocks are counted before they are reserved. A file that was written back in between kept a reservation for its
/// extent btree for these blocks, too. When they could not be reserved, it kept that although it was clean: nobody else
/// got the last blocks of the volume.
#[test]
fn a_refused_write_leaves_no_reservation() {
    let volume = Volume::new(12, 40);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    contents.write(0, &[1; 4096]).unwrap();
    let (others, syncing) = (volume.clone(), Arc::clone(&volume_cache));
    volume.hooks().reserve.set(move || {
        let flusher = base::thread::spawn("flusher", move || syncing.sync_all().unwrap());
        flusher.unwrap().join().unwrap();
        while others.reserve(1).is_ok() {}
    });
    let refused = contents.write(8 << 12, &[2; 4096]).unwrap_err();
    assert_eq!(refused.errno(), base::errno::ENOSPC);
    assert_eq!(contents.all_reserved_blocks(), (0, 0));
}

/// A reservation for the extent btree was added after the write that needed it was cancelled, and stayed.
#[test]
fn a_btree_reservation_that_is_no_longer_needed_is_released() {
    let volume = Volume::new(12, 40);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    contents.reserve_dirty(1, 1, &[], |part| part.count).unwrap();
    // Writeback takes the whole reservation of the extent btree into its transaction.
    volume.unreserve(contents.take_map_reservation().tree);
    let writer = Arc::clone(&contents);
    volume.hooks().reserve.set(move || writer.cancel_dirty(1, 1));
    contents.release_surplus();
    assert_eq!(contents.all_reserved_blocks(), (0, 0));
    volume.check_quiet();
}

/// Writeback puts back unused reservations after it has ended the writeback of its blocks. If another thread had seen
/// the file clean by then, rmap reservations stayed with a clean file.
#[test]
fn unused_rmap_reservations_of_writeback_are_released() {
    let volume = Volume::new(12, 40);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    let unwritten = Mapping {
        offset: FileBlock(0),
        count: 1,
        state: MappingState::Unwritten,
        start: FsBlock(1),
        shared: false,
    };
    contents.reserve_dirty(0, 1, &[unwritten], |part| part.count).unwrap();
    let share = contents.take_map_reservation();
    volume.unreserve(share.tree);
    contents.cancel_dirty(0, 1);
    contents.return_unused(0, 0, share.rmap);
    volume.check_quiet();
}

/// A write for which rmap records cannot be reserved fails at once: nothing is dirty, and nothing stays reserved.
#[test]
fn a_write_without_space_for_split_records_is_refused() {
    let volume = Volume::new(12, 200);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    assert!(contents.change_map(0..0, Edges::Keep, |_| Ok(volume.allocate(1, 0, 8))).unwrap());
    volume.fail(Op::ReserveRmap, 0, i64::MAX);
    for direct in [false, true] {
        let refused = match direct {
            false => contents.write(4096, &[1; 4096]).unwrap_err(),
            true => contents.direct_write(4096, &[1; 4096]).unwrap_err(),
        };
        assert_eq!(refused.errno(), base::errno::ENOSPC);
        assert!(!contents.is_needed());
    }
    // A hole has no records to split.
    contents.write(8 << 12, &[2; 4096]).unwrap();
    volume_cache.sync_all().unwrap();
    volume.heal();
    contents.write(4096, &[1; 4096]).unwrap();
    volume_cache.sync_all().unwrap();
    assert_eq!(volume.contents(&volume.on_disk(1))[4096..8192], [1; 4096]);
    contents.release_preallocation();
    volume.check_quiet();
}

/// What was written before a file's contents came into memory may still be in the cache of the device.
#[test]
fn contents_that_come_into_memory_again_count_earlier_writes() {
    let volume = Volume::new(12, 1000);
    let volume_cache = cache(&volume, 16 << 20);
    let contents = file(&volume_cache, 1);
    contents.write(0, &[1; 4096]).unwrap();
    volume_cache.sync_all().unwrap();
    let written = contents.last_write();
    assert!(written > 0);
    drop(contents);
    assert!(file(&volume_cache, 1).last_write() >= written);
}
