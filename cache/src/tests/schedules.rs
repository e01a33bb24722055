//! Threads preempted anywhere, by a deterministic scheduler: the same seed gives the same run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use base::errno;
use base::memory::Share;
use base::simulation::{SchedulingStrategy, SimulationOptions, run};
use base::thread;

use super::{Dice, cache, file};
use crate::folio::FOLIO_BYTES;
use crate::testing::{Op, Volume, pattern};
use crate::{Cache, Contents, DirtyLimit, Flusher, Options};

pub const BLOCK: u64 = 4096;

pub fn plan(seed: u64) -> SimulationOptions {
    SimulationOptions {
        stalls_per_million: 2000,
        spurious_per_million: 1000,
        ..SimulationOptions::new(seed, SchedulingStrategy::of_seed(seed, 200))
    }
}

pub fn bytes(ino: u64, at: u64, length: u64) -> Vec<u8> {
    (at..at + length).map(|at| pattern(ino, at)).collect()
}

/// Returns the offset of the first wrong byte.
pub fn wrong(ino: u64, at: u64, got: &[u8]) -> Option<u64> {
    (at..).zip(got).find(|(at, byte)| **byte != pattern(ino, *at)).map(|(at, _)| at)
}

/// A miss zeroed a folio beyond the size of that moment, and with it bytes that a writer had appended to the same folio
/// before it raised the size: acknowledged bytes became zeros.
#[test]
fn a_miss_does_not_zero_bytes_being_appended() {
    for seed in 0..40 {
        run(plan(seed), || {
            let volume = Volume::new(12, 100);
            let volume_cache = cache(&volume, 1 << 20);
            let contents = file(&volume_cache, 2);
            contents.append(&bytes(2, 0, 8 * BLOCK)).unwrap();
            contents.invalidate(0..u64::MAX).unwrap();
            let reader = Arc::clone(&contents);
            let reader = thread::spawn("reader", move || {
                let mut got = vec![0; BLOCK as usize];
                for block in 0..8 {
                    assert_eq!(reader.read(block * BLOCK, &mut got).unwrap(), got.len());
                    assert_eq!(wrong(2, block * BLOCK, &got), None);
                }
            });
            for block in 8..14 {
                contents.append(&bytes(2, block * BLOCK, BLOCK)).unwrap();
            }
            reader.unwrap().join().unwrap();
            let mut got = vec![0; 14 * BLOCK as usize];
            contents.read(0, &mut got).unwrap();
            assert_eq!(wrong(2, 0, &got), None, "seed {seed}");
        });
    }
}

/// A reader had read the size; the file was truncated and written again before the reader mapped it: it returned zeros
/// that the file never contained.
#[test]
fn a_reader_concurrent_with_truncation_sees_no_zeros() {
    for seed in 0..40 {
        run(plan(seed), || {
            let volume = Volume::new(12, 200);
            let volume_cache = cache(&volume, 1 << 20);
            let contents = file(&volume_cache, 2);
            let length = 20 * BLOCK + 700;
            contents.append(&bytes(2, 0, length)).unwrap();
            let spawn = |direct: bool| {
                let reader = Arc::clone(&contents);
                thread::spawn("reader", move || {
                    let mut dice = Dice::new(seed);
                    let mut got = vec![0; 5 * BLOCK as usize];
                    for _ in 0..30 {
                        let at = dice.next(length / BLOCK) * BLOCK;
                        let read = if direct { Contents::direct_read } else { Contents::read };
                        let count = read(&reader, at, &mut got).unwrap();
                        assert_eq!(wrong(2, at, &got[..count]), None, "direct: {direct}, seed {seed}");
                    }
                })
                .unwrap()
            };
            let readers = [spawn(false), spawn(true)];
            for _ in 0..10 {
                contents.truncate(length / 3).unwrap();
                volume.force();
                contents.append(&bytes(2, length / 3, length - length / 3)).unwrap();
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }
}

/// A writer at the hard limit gave up waiting after 250 checks without progress: a device that took longer for its
/// writes let memory fill with dirty bytes.
#[test]
fn writers_wait_for_a_slow_device_at_the_limit() {
    run(plan(1), || {
        let volume = Volume::new(12, 2000);
        volume.hooks().delay(Duration::from_secs(60));
        let hard = 512 << 10;
        let options = Options {
            dirty: Some(DirtyLimit::Bytes(hard)),
            pass_bytes: 64 << 10,
            interval_ms: 0,
            ..Options::default()
        };
        let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(4 << 20), options);
        let flusher = Flusher::start(&volume_cache).unwrap();
        let writers: Vec<_> = (2..5)
            .map(|ino| {
                let contents = file(&volume_cache, ino);
                thread::spawn("writer", move || {
                    for n in 0..60 {
                        contents.append(&bytes(ino, n * 4 * BLOCK, 4 * BLOCK)).unwrap();
                        let dirty = contents.cache.statistics().dirty_bytes;
                        assert!(dirty <= hard + hard / 8, "{dirty} bytes are dirty");
                    }
                })
                .unwrap()
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        drop(flusher);
        volume_cache.abandon();
    });
}

/// A writer at the limit got an error of an earlier pass, though the device worked again.
#[test]
fn writes_succeed_at_once_after_the_device_recovered() {
    run(plan(2), || {
        let volume = Volume::new(12, 4000);
        let options =
            Options { dirty: Some(DirtyLimit::Bytes(256 << 10)), interval_ms: 0, ..Options::default() };
        let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(1 << 20), options);
        let flusher = Flusher::start(&volume_cache).unwrap();
        volume.fail(Op::Write, 0, i64::MAX);
        let contents = file(&volume_cache, 7);
        let refused = (0..4000u64).find_map(|n| contents.write(n * BLOCK, &[1; BLOCK as usize]).err());
        assert_eq!(refused.map(|error| error.errno()), Some(errno::EIO));
        volume.heal();
        contents.write(0, &[2; BLOCK as usize]).unwrap();
        contents.write(999 * BLOCK, &[2; BLOCK as usize]).unwrap();
        drop(flusher);
        volume_cache.sync_all().unwrap();
    });
}

/// Readahead locked a folio by a mapping from before its writeback, which had meanwhile moved shared blocks elsewhere
/// and dropped the folio: the old blocks were read, and stayed in memory.
#[test]
fn readahead_beside_writeback_of_shared_blocks_reads_no_old_blocks() {
    for seed in 0..60 {
        run(plan(seed), || {
            let volume = Volume::new(12, 400);
            let volume_cache = cache(&volume, 4 << 20);
            let contents = file(&volume_cache, 2);
            let folio = FOLIO_BYTES as u64;
            contents.write(0, &[1; 2 * FOLIO_BYTES]).unwrap();
            contents.flush(0..u64::MAX).unwrap();
            for round in 2..8 {
                volume.share(2, 3, 0, 2 * folio / BLOCK);
                contents.map_changed();
                contents.invalidate(0..u64::MAX).unwrap();
                contents.write(folio, &[round; FOLIO_BYTES]).unwrap();
                contents.find_folio(1).unwrap().state.write().drop_when_clean = true;
                let reader = Arc::clone(&contents);
                let reader = thread::spawn("reader", move || {
                    reader.read(0, &mut [0; 4096]).unwrap();
                });
                contents.flush(0..u64::MAX).unwrap();
                reader.unwrap().join().unwrap();
                let mut got = [0; 1];
                contents.read(folio, &mut got).unwrap();
                assert_eq!(got, [round], "seed {seed}");
                volume.force();
            }
        });
    }
}

/// Writeback wrote the block of an append before the writer had raised the size, and finished it with the old size.
/// Nothing was dirty then that would have raised the size on disk: the appended bytes were lost, with `fsync`, too.
#[test]
fn the_size_on_disk_follows_an_append_beside_writeback() {
    for (seed, with_fsync) in (0..60).zip([false, true].into_iter().cycle()) {
        run(plan(seed), || {
            let volume = Volume::new(12, 100);
            let volume_cache = cache(&volume, 1 << 20);
            let contents = file(&volume_cache, 2);
            let (is_done, others) = (Arc::new(AtomicBool::new(false)), Arc::clone(&volume_cache));
            let done = Arc::clone(&is_done);
            let syncs = thread::spawn("syncs", move || {
                while !done.load(SeqCst) {
                    others.sync_all().unwrap();
                    thread::yield_now();
                }
            });
            let seen = contents.errors.sample();
            for n in 0..8 {
                contents.append(&bytes(2, n * 700, 700)).unwrap();
                if with_fsync {
                    contents.sync(&seen).unwrap()
                } else {
                    volume_cache.sync_all().unwrap()
                }
                assert_eq!(volume.on_disk(2).size, (n + 1) * 700, "seed {seed}");
            }
            is_done.store(true, SeqCst);
            syncs.unwrap().join().unwrap();
        });
    }
}

/// A pass may end for a file while another thread's `fsync` writes its block. A sync that begins then waits for it.
#[test]
fn a_sync_waits_for_blocks_that_other_threads_write() {
    for seed in 0..60 {
        run(plan(seed), || {
            let volume = Volume::new(12, 100);
            volume.hooks().delay(Duration::from_millis(1));
            let volume_cache = cache(&volume, 1 << 20);
            let contents = file(&volume_cache, 2);
            contents.write(0, &[0; BLOCK as usize]).unwrap();
            let is_done = Arc::new(AtomicBool::new(false));
            let others = [false, true].map(|with_fsync| {
                let (contents, others) = (Arc::clone(&contents), Arc::clone(&volume_cache));
                let done = Arc::clone(&is_done);
                let run = move || {
                    let seen = contents.errors.sample();
                    while !done.load(SeqCst) {
                        if with_fsync {
                            contents.sync(&seen).unwrap()
                        } else {
                            others.sync_all().unwrap()
                        }
                        thread::yield_now();
                    }
                };
                thread::spawn("other", run).unwrap()
            });
            for n in 1..12 {
                contents.write(0, &[n; BLOCK as usize]).unwrap();
                volume_cache.sync_all().unwrap();
                assert_eq!(volume.contents(&volume.on_disk(2))[..1], [n], "seed {seed}");
            }
            is_done.store(true, SeqCst);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}

/// A write that failed in an `fsync` made a file dirty that was in no list: no flusher wrote it again.
#[test]
fn a_file_whose_fsync_failed_is_written_by_the_next_sync() {
    let volume = Volume::new(12, 100);
    let volume_cache = cache(&volume, 1 << 20);
    let contents = file(&volume_cache, 2);
    contents.write(0, &[1; BLOCK as usize]).unwrap();
    volume_cache.sync_all().unwrap();
    let seen = contents.errors.sample();
    contents.write(0, &[2; BLOCK as usize]).unwrap();
    // The flusher has taken it out of its list, and another pass ends for it meanwhile.
    contents.listed.store(false, SeqCst);
    drop(volume_cache.dirty_files.take(0, None));
    volume.fail(Op::Write, 0, 1);
    assert_eq!(contents.sync(&seen).unwrap_err().errno(), errno::EIO);
    volume.heal();
    volume_cache.sync_all().unwrap();
    assert_eq!(volume.contents(&volume.on_disk(2))[..1], [2]);
}

/// A thread that found a file listed returned before the thread that had marked it had added it: a sync by the first
/// one found no dirty file.
#[test]
fn a_writer_waits_until_its_file_is_one_of_the_dirty_files() {
    for seed in 0..20 {
        run(plan(seed), || {
            let volume = Volume::new(12, 100);
            let volume_cache = cache(&volume, 1 << 20);
            let contents = file(&volume_cache, 2);
            // What another thread does that adds the file.
            contents.adding.fetch_add(1, SeqCst);
            contents.listed.store(true, SeqCst);
            let has_written = Arc::new(AtomicBool::new(false));
            let (writer, done) = (Arc::clone(&contents), Arc::clone(&has_written));
            let writer = thread::spawn("writer", move || {
                writer.write(0, &[1; BLOCK as usize]).unwrap();
                done.store(true, SeqCst);
                writer.cache.sync_all().unwrap();
            });
            (0..100).for_each(|_| thread::sleep(Duration::from_millis(1)));
            assert!(!has_written.load(SeqCst), "seed {seed}");
            volume_cache.add_dirty(Arc::clone(&contents), 0);
            contents.adding.fetch_sub(1, SeqCst);
            writer.unwrap().join().unwrap();
            assert_eq!(volume.contents(&volume.on_disk(2))[..1], [1], "seed {seed}");
        });
    }
}
