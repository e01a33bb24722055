//! Many threads on many files, with a flusher, small budgets, and somebody who syncs all the time.

use std::sync::Arc;

use base::stop;

use super::{Dice, cache, file};
use crate::testing::{Volume, pattern};
use crate::{Cache, Flusher, Options};

/// One thread with files of its own, against a model.
fn owner(volume_cache: &Arc<Cache<Volume>>, thread: u64, steps: u64) {
    let mut dice = Dice::new(thread);
    let files: Vec<_> = (0..6).map(|n| file(volume_cache, thread * 100 + n + 1)).collect();
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
                assert!(got[..count] == wanted[..length.min(wanted.len())], "file {}", contents.file());
            }
        }
    }
}

#[test]
fn threads_with_files_of_their_own() {
    let volume = Volume::new(12, 12_000).with_longest_claim(40);
    let options =
        Options { cache_bytes: Some(1 << 20), pass_bytes: 256 << 10, interval_ms: 5, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), options);
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
fn readers_beside_a_writer_see_what_was_written_there_or_nothing() {
    let volume = Volume::new(12, 4000);
    let options = Options { cache_bytes: Some(256 << 10), interval_ms: 1, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), options);
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

/// Syncs that came after one that panicked waited for its end for ever.
#[test]
fn a_sync_that_panics_leaves_no_other_waiting() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    contents.write(0, &[7; 8192]).unwrap();
    // Without the message of a panic.
    volume.hooks().finish.set(|| std::panic::resume_unwind(Box::new(())));
    let panics = std::panic::AssertUnwindSafe(|| volume_cache.sync_all());
    assert!(std::panic::catch_unwind(panics).is_err());
    contents.write(0, &[8; 8192]).unwrap();
    // It may fail, as the first left its file in the middle of a change. It ends.
    let _ = volume_cache.sync_all();
}

/// What was on its way to new blocks was taken for a hole, and the part of a block at the edge of a hole that was
/// punched, or behind a new end, kept its bytes.
#[test]
fn a_part_of_a_block_is_zeroed_while_the_block_is_written_back() {
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

/// What was appended after a pass had looked at the size, and before it looked for dirty blocks, was written; the size
/// on disk stayed, and nothing was left to be written that would have moved it.
#[test]
fn the_size_on_disk_follows_what_is_written() {
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

/// A search for data or holes looked at the map, and then at what is in memory. What became a part of the map in
/// between was in neither.
#[test]
fn data_that_is_mapped_during_a_search_is_found() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 3);
    for (seek, found) in [(true, Some(0)), (false, Some(4096))] {
        contents.truncate(0).unwrap();
        contents.write(0, &[7; 4096]).unwrap();
        let other = Arc::clone(&contents);
        volume.hooks().mapped.set(move || {
            std::thread::spawn(move || other.flush(0..u64::MAX).unwrap()).join().unwrap();
        });
        let search = if seek { contents.seek_data(0) } else { contents.seek_hole(0) };
        assert_eq!(search.unwrap(), found);
    }
    drop(contents);
    volume.check_quiet();
}

/// A reader past memory asked for the map; before it read, the block that it had been told of was another file's alone,
/// with other bytes.
#[test]
fn who_reads_past_memory_sees_no_bytes_of_others() {
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

/// A file that memory cannot hold is read without taking any.
#[test]
fn who_reads_much_of_a_large_file_takes_no_memory() {
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

/// A direct reader knew where a shared block lay. Writeback gave the file a block of its own, and was stopped before
/// the cache learnt of it; the other file gave the old block up, and a third file got it. The reader took the third
/// file's bytes for its own.
#[test]
fn a_direct_reader_sees_no_block_that_became_another_files() {
    use std::sync::mpsc;
    use std::time::Duration;
    // What is read past memory needs a file that memory cannot hold.
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
                // The last owner of the old blocks gives them up.
                volume.punch(4, 0, 32);
                volume.force();
                mapped.0.send(()).unwrap();
                // Ends when the reader has read, or waits for the end of this.
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
                    // Takes all blocks that are free. This thread holds locks.
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

/// The flusher panicked, and writers at the limit of dirty bytes waited for its next pass for ever.
#[test]
fn a_flusher_that_panics_leaves_no_writer_waiting() {
    let volume = Volume::new(12, 4000);
    let options = Options { cache_bytes: Some(256 << 10), interval_ms: 1, ..Options::default() };
    let volume_cache = Cache::new(volume.clone(), options);
    // Without the message of a panic.
    volume.hooks().finish.set(|| std::panic::resume_unwind(Box::new(())));
    let flusher = Flusher::start(&volume_cache).unwrap();
    let contents = file(&volume_cache, 3);
    for n in 0..1000 {
        // What the pass that panicked had picked stays in writeback, and is written no more: other blocks.
        contents.write(n * 4096, &[1; 4096]).unwrap();
    }
    drop(flusher);
}

/// A pass claimed blocks for all small files that it was about to write, with the locks of the first alone. One of the
/// others was truncated meanwhile, and what it had set aside went to a third file: more was claimed than was set aside,
/// the third file found no block, and its fsync failed for want of space.
#[test]
fn a_pass_claims_no_more_than_its_files_have_set_aside() {
    let volume = Volume::new(12, 60);
    let volume_cache = cache(&volume, 1 << 20);
    let [first, second, third] = [1, 2, 3].map(|ino| file(&volume_cache, ino));
    for at in [0, 2] {
        first.write(at * 4096, &[1; 4096]).unwrap();
    }
    second.write(0, &[2; 30 * 4096]).unwrap();
    let (mapped, done) = (volume.clone(), std::sync::mpsc::channel());
    let fills = move || {
        // Where the pass has its locks, the second file keeps what it has set aside.
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
