//! Many threads on many files, with a flusher, small limits, and a thread that syncs all the time.

use std::sync::Arc;

use backing::{Mapping, MappingState};
use base::memory::Share;
use base::{FileBlock, FsBlock, stop};

use super::{Dice, cache, file};
use crate::testing::{Volume, pattern};
use crate::{Cache, Flusher, Options, SeekTarget};

/// One thread with its own files, against a model.
fn owner(volume_cache: &Arc<Cache<Volume>>, thread: u64, steps: u64) {
    let mut dice = Dice::new(thread);
    // In all groups.
    let files: Vec<_> =
        (0..6).map(|n| file(volume_cache, (((thread + n) % 8) << 20) + thread * 16 + n)).collect();
    let mut models = vec![Vec::new(); files.len()];
    for _ in 0..steps {
        let which = dice.next(6) as usize;
        let (contents, model) = (&files[which], &mut models[which]);
        let (at, length) = (dice.next(150_000) as usize, dice.next(20_000) as usize);
        match dice.next(8) {
            0..=3 => {
                let data = vec![dice.next(255) as u8 + 1; length];
                assert_eq!(contents.write(at as u64, &data).unwrap(), length);
                if length > 0 {
                    model.resize(model.len().max(at + length), 0);
                    model[at..at + length].copy_from_slice(&data);
                }
            }
            4 => {
                contents.truncate(at as u64).unwrap();
                model.resize(at, 0);
            }
            5 => contents.flush(0..u64::MAX).unwrap(),
            _ => {
                let mut got = vec![0xee; length];
                let count = contents.read(at as u64, &mut got).unwrap();
                let wanted = model.get(at..).unwrap_or(&[]);
                assert!(got[..count] == wanted[..length.min(wanted.len())], "file {}", contents.file);
            }
        }
    }
}

#[test]
fn threads_with_their_own_files() {
    let volume = Volume::new(12, 12_000).with_longest_claim(40);
    let (flushers, pass_bytes) = (Some(3), 256 << 10);
    let options = Options { flushers, pass_bytes, interval_ms: 5, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(1 << 20), options);
    let flusher = Flusher::start(&volume_cache).unwrap();
    stop::scope(|scope| {
        scope.spawn(|stop| {
            while !stop.is_set() {
                volume_cache.sync_all().unwrap();
                volume.force();
            }
        });
        let cache = &volume_cache;
        let owners: Vec<_> = (0..4).map(|thread| scope.spawn(move |_| owner(cache, thread, 700))).collect();
        owners.into_iter().for_each(|owner| owner.join().unwrap());
    });
    volume_cache.sync_all().unwrap();
    drop(flusher);
    let statistics = volume_cache.statistics();
    assert_eq!((statistics.dirty_bytes, statistics.memory_bytes), (0, 0), "{statistics:?}");
    volume.check_quiet();
}

#[test]
fn readers_concurrent_with_a_writer_see_written_data_or_zeros() {
    let volume = Volume::new(12, 4000);
    let options = Options { interval_ms: 1, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(256 << 10), options);
    let flusher = Flusher::start(&volume_cache).unwrap();
    let contents = file(&volume_cache, 3);
    stop::scope(|scope| {
        for seed in 0..3 {
            let contents = &contents;
            scope.spawn(move |stop| {
                let mut dice = Dice::new(seed);
                let mut buf = vec![0; 9000];
                while !stop.is_set() {
                    let at = dice.next(1 << 20);
                    let count = contents.read(at, &mut buf).unwrap();
                    let wrong = (0..count).find(|n| buf[*n] != 0 && buf[*n] != pattern(3, at + *n as u64));
                    assert_eq!(wrong, None);
                }
            });
        }
        let mut dice = Dice::new(77);
        for n in 0..800 {
            let at = dice.next(1 << 20);
            let data: Vec<u8> = (at..at + dice.next(12_000)).map(|at| pattern(3, at)).collect();
            contents.write(at, &data).unwrap();
            if n % 50 == 0 {
                contents.truncate(dice.next(1 << 20)).unwrap();
            }
            if n % 30 == 0 {
                volume.force();
            }
        }
    });
    contents.flush(0..u64::MAX).unwrap();
    drop(flusher);
}

/// Syncs called after one had panicked waited forever for its end.
#[test]
fn a_panicking_sync_leaves_no_other_sync_waiting() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    contents.write(0, &[7; 8192]).unwrap();
    // Without the message of a panic.
    volume.hooks().finish.set(|| std::panic::resume_unwind(Box::new(())));
    let panics = std::panic::AssertUnwindSafe(|| volume_cache.sync_all());
    assert!(std::panic::catch_unwind(panics).is_err());
    contents.write(0, &[8; 8192]).unwrap();
    // It may fail, as the first sync left its file in the middle of a change. But it returns.
    let _ = volume_cache.sync_all();
}

/// A block in writeback to new blocks was taken for a hole: the part of it in a punched range, or beyond a new end, was
/// not zeroed.
#[test]
fn a_part_of_a_block_in_writeback_is_zeroed() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    contents.write(0, &[7; 8192]).unwrap();
    let other = Arc::clone(&contents);
    volume.hooks().finish.set(move || {
        std::thread::spawn(move || other.zero_within_block(1, 4095).unwrap()).join().unwrap();
    });
    contents.flush(0..u64::MAX).unwrap();
    let mut found = [1; 8192];
    contents.read(0, &mut found).unwrap();
    let punched = |bytes: &[u8]| bytes[0] == 7 && bytes[1..4096].iter().all(|byte| *byte == 0);
    assert!(punched(&found) && found[4096..].iter().all(|byte| *byte == 7));
    contents.flush(0..u64::MAX).unwrap();
    assert!(punched(&volume.contents(&volume.on_disk(3))));
    drop(contents);
    volume.check_quiet();
}

/// Bytes appended after a pass had read the size and before it searched dirty blocks were written, but the size on disk
/// stayed, and nothing dirty was left to raise it later.
#[test]
fn the_size_on_disk_covers_all_written_data() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    contents.write(0, &[7; 4096]).unwrap();
    let other = Arc::clone(&contents);
    volume.hooks().begun.set(move || {
        std::thread::spawn(move || other.append(&[8; 5000]).unwrap()).join().unwrap();
    });
    volume_cache.sync_all().unwrap();
    volume_cache.sync_all().unwrap();
    assert_eq!(volume.on_disk(3).size, 4096 + 5000);
    drop(contents);
    volume.check_quiet();
}

/// `SEEK_DATA` and `SEEK_HOLE` read the map, and then memory. A block that was mapped in between was in neither.
#[test]
fn data_that_is_mapped_during_a_search_is_found() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    for (target, found) in [(SeekTarget::Data, 0), (SeekTarget::Hole, 4096)] {
        contents.truncate(0).unwrap();
        contents.write(0, &[7; 4096]).unwrap();
        let other = Arc::clone(&contents);
        volume.hooks().mapped.set(move || {
            std::thread::spawn(move || other.flush(0..u64::MAX).unwrap()).join().unwrap();
        });
        assert_eq!(contents.seek(0, target).unwrap(), Some(found));
    }
    drop(contents);
    volume.check_quiet();
}

/// The map of a file without mapped blocks.
fn hole(offset: FileBlock, count: u64) -> Option<Mapping> {
    Some(Mapping { offset, count, start: FsBlock(0), state: MappingState::Hole, shared: false })
}

/// A block in writeback is neither mapped nor dirty.
#[test]
fn data_in_writeback_is_found_without_locks() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    contents.write(0, &[7; 4096]).unwrap();
    contents.write(8192, &[7; 4096]).unwrap();
    let other = Arc::clone(&contents);
    let search = move |target| other.peek_seek(0, target, hole);
    let found = [SeekTarget::Data, SeekTarget::Hole].map(&search);
    assert_eq!(found, [Some(Some(0)), Some(Some(4096))]);
    let in_writeback = search.clone();
    volume.hooks().finish.set(move || {
        assert_eq!([SeekTarget::Data, SeekTarget::Hole].map(in_writeback), found);
    });
    contents.flush(0..u64::MAX).unwrap();
    let layout = contents.layout.write();
    assert_eq!(search(SeekTarget::Data), None);
    drop(layout);
    drop((search, contents));
    volume.check_quiet();
}

/// A search for a hole waited for a page behind it, which was being read.
#[test]
fn a_search_for_a_hole_waits_for_no_page_behind_it() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    contents.write(200 << 10, &[7; 4096]).unwrap();
    let folio = contents.find_folio(3).unwrap();
    let locked = folio.state.write();
    assert_eq!(contents.peek_seek(0, SeekTarget::Hole, hole), Some(Some(0)));
    assert_eq!(contents.peek_seek(0, SeekTarget::Data, hole), None);
    drop(locked);
    drop((folio, contents));
    volume_cache.sync_all().unwrap();
    volume.check_quiet();
}

/// An uncached read mapped a block. Before it read it, the block belonged to another file, with other bytes.
#[test]
fn an_uncached_read_returns_no_data_of_other_files() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 32 << 10);
    let (contents, other) = (file(&volume_cache, 3), file(&volume_cache, 4));
    let length = super::BYPASS_BYTES.next_multiple_of(4096) as usize;
    let mut read = vec![0; length];
    for direct in [false, true] {
        contents.truncate(0).unwrap();
        contents.write(0, &vec![1; length]).unwrap();
        contents.flush(0..u64::MAX).unwrap();
        volume.share(3, 4, 0, length as u64 >> 12);
        other.truncate(length as u64).unwrap();
        contents.invalidate(0..u64::MAX).unwrap();
        let (moved, changed) = (Arc::clone(&contents), Arc::clone(&other));
        volume.hooks().mapped.set(move || {
            let happens = move || {
                for (file, byte) in [(&moved, 2), (&changed, 3)] {
                    file.write(0, &vec![byte; length]).unwrap();
                    file.flush(0..u64::MAX).unwrap();
                    file.invalidate(0..u64::MAX).unwrap();
                }
            };
            std::thread::spawn(happens).join().unwrap();
        });
        let count = match direct {
            true => contents.direct_read(0, &mut read).unwrap(),
            false => contents.read(0, &mut read).unwrap(),
        };
        assert_eq!(count, length);
        assert!(read.iter().all(|byte| *byte == 2), "direct: {direct}, {}", read[0]);
    }
}

/// Large reads of a file larger than the cache take no memory.
#[test]
fn large_reads_of_a_large_file_take_no_memory() {
    let volume = Volume::new(12, 1000);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    let bytes: Vec<u8> = (0..1_000_000).map(|at| pattern(3, at)).collect();
    contents.write(0, &bytes).unwrap();
    contents.flush(0..u64::MAX).unwrap();
    contents.invalidate(0..u64::MAX).unwrap();
    let before = volume_cache.statistics().memory_bytes;
    let mut read = vec![0; 1_000_000 - 4096];
    assert_eq!(contents.read(4096, &mut read).unwrap(), read.len());
    assert!(read == bytes[4096..]);
    let taken = volume_cache.statistics().memory_bytes - before;
    assert!(taken <= 64 << 10, "{taken} bytes, for the end of the file alone");
}

/// A direct reader had mapped a shared block. Writeback gave the file its own block, and was preempted before it
/// changed `map_seq`; the other file freed the old block, and a third file got it. The reader returned the third file's
/// data.
#[test]
fn a_direct_read_returns_no_data_of_other_files() {
    use std::sync::mpsc;
    use std::time::Duration;
    // Uncached reads need a file larger than the cache.
    for direct in [true, false] {
        let volume = Volume::new(12, 200);
        let volume_cache = cache(&volume, 128 << 10);
        let length = 32 * 4096;
        let contents = file(&volume_cache, 3);
        let bytes = |ino| (0..length).map(|at| pattern(ino, at)).collect::<Vec<u8>>();
        contents.write(0, &bytes(3)).unwrap();
        contents.invalidate(0..u64::MAX).unwrap();
        volume.share(3, 4, 0, 32);
        let (mapped, finished) = (mpsc::channel(), mpsc::channel());
        volume.hooks().finished.set({
            let volume = volume.clone();
            move || {
                // The last owner of the old blocks frees them.
                volume.punch(4, 0, 32);
                volume.force();
                mapped.0.send(()).unwrap();
                // Ends when the reader has read, or waits for this to end.
                let _ = finished.1.recv_timeout(Duration::from_millis(300));
            }
        });
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let writer = Arc::clone(&contents);
                let (volume_cache, hooked) = (Arc::clone(&volume_cache), volume.clone());
                volume.hooks().mapped.set(move || {
                    let flush = std::thread::spawn(move || {
                        writer.write(0, &(0..length).map(|at| pattern(3, at)).collect::<Vec<u8>>()).unwrap();
                        writer.invalidate(0..u64::MAX).unwrap();
                    });
                    mapped.1.recv().unwrap();
                    // Takes all free blocks. This thread holds locks.
                    let other = std::thread::spawn(move || {
                        let other = file(&volume_cache, 5);
                        (0..).find(|block| other.direct_write(block * 4096, &[0xee; 4096]).is_err())
                    });
                    assert!(other.join().unwrap() > Some(32));
                    drop((flush, hooked));
                });
                let mut got = vec![0; length as usize];
                let count = match direct {
                    true => contents.direct_read(0, &mut got).unwrap(),
                    false => contents.read(0, &mut got).unwrap(),
                };
                let _ = finished.0.send(());
                assert_eq!(count, got.len());
                assert!(got == bytes(3), "direct: {direct}");
            });
            reader.join().unwrap();
        });
    }
}

/// The flusher panicked, and writers at the hard limit waited forever for its next pass.
#[test]
fn a_panicking_flusher_leaves_no_writer_waiting() {
    let volume = Volume::new(12, 4000);
    let options = Options { interval_ms: 1, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(256 << 10), options);
    // Without the message of a panic.
    volume.hooks().finish.set(|| std::panic::resume_unwind(Box::new(())));
    let flusher = Flusher::start(&volume_cache).unwrap();
    let contents = file(&volume_cache, 3);
    for n in 0..1000 {
        // Blocks of the pass that panicked stay in writeback and are never written: uses other blocks.
        contents.write(n * 4096, &[1; 4096]).unwrap();
    }
    drop(flusher);
}

/// A pass claimed blocks for all its small files while it held only the locks of the first. Another of them was
/// truncated meanwhile, and its reservation went to a third file: more was claimed than was reserved, the third file
/// found no block, and its `fsync` failed with `ENOSPC`.
#[test]
fn a_pass_claims_no_more_than_its_files_have_reserved() {
    let volume = Volume::new(12, 60);
    let volume_cache = cache(&volume, 1 << 20);
    let [first, second, third] = [1, 2, 3].map(|ino| file(&volume_cache, ino));
    for at in [0, 2] {
        first.write(at * 4096, &[1; 4096]).unwrap();
    }
    second.write(0, &[2; 30 * 4096]).unwrap();
    let (mapped, done) = (volume.clone(), std::sync::mpsc::channel());
    let fills = move || {
        // As the pass holds its locks, the second file keeps its reservation.
        let is_free = second.layout.try_write().is_some();
        if is_free {
            second.truncate(0).unwrap();
        }
        third.write(0, &vec![3; if is_free { 40 * 4096 } else { 4096 }]).unwrap();
        third.flush(0..u64::MAX).unwrap();
        done.0.send(()).unwrap();
    };
    volume.hooks().mapped.set(move || {
        // The first block of the first file has been claimed. This thread holds locks.
        let fills = move || std::thread::spawn(fills).join().unwrap();
        mapped.hooks().mapped.set(fills);
    });
    volume_cache.sync_all().unwrap();
    done.1.try_recv().unwrap();
    volume.force();
    volume.check_quiet();
}
