//! Several flushers, and many syncs, by a deterministic scheduler in virtual time.

use std::sync::Arc;
use std::time::Duration;

use base::errno;
use base::memory::Share;
use base::simulation::{now, run};
use base::thread;

use super::schedules::{BLOCK, bytes, plan, wrong};
use super::{Dice, file};
use crate::testing::{OPS, Op, Volume};
use crate::{Cache, Contents, DirtyLimit, Flusher, Options};

/// Returns the number of a file in a group.
fn ino(group: u64, n: u64) -> u64 {
    group << 20 | n
}

/// Returns how long a sync takes that writes 16 times, if each write takes a minute.
fn sync_time(seed: u64, flushers: usize) -> Duration {
    let work = || {
        let volume = Volume::new(12, 2000);
        let options = Options {
            flushers: Some(flushers),
            pass_bytes: 64 << 10,
            interval_ms: 0,
            preallocate: false,
            ..Options::default()
        };
        let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(64 << 20), options);
        let flusher = Flusher::start(&volume_cache).unwrap();
        for group in [0, 2, 4, 6] {
            file(&volume_cache, ino(group, 1)).write(0, &[1; 256 << 10]).unwrap();
        }
        volume.hooks().delay(Duration::from_secs(60));
        let begin = now().unwrap();
        volume_cache.sync_all().unwrap();
        let time = now().unwrap() - begin;
        assert_eq!(volume_cache.statistics().dirty_bytes, 0);
        assert_eq!(volume.writes(), 16);
        drop(flusher);
        time
    };
    run(plan(seed), work).0
}

#[test]
fn a_sync_is_a_pass_of_each_flusher_at_once() {
    for seed in 0..6 {
        let (one, two, four) = (sync_time(seed, 1), sync_time(seed, 2), sync_time(seed, 4));
        assert!(two.as_secs() * 9 < one.as_secs() * 5, "seed {seed}: {two:?}, and {one:?} with one flusher");
        assert!(four.as_secs() * 3 < one.as_secs(), "seed {seed}: {four:?}, and {one:?} with one flusher");
    }
}

/// Syncs that are called during a pass share the next one, and each returns after its own data was written.
#[test]
fn syncs_at_once_share_passes() {
    for seed in 0..12 {
        let flushers = seed as usize % 3 + 1;
        run(plan(seed), || {
            let volume = Volume::new(12, 2000);
            volume.hooks().delay(Duration::from_secs(600));
            let options = Options { flushers: Some(flushers), interval_ms: 0, ..Options::default() };
            let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(64 << 20), options);
            let flusher = Flusher::start(&volume_cache).unwrap();
            let syncing = |n: u64| {
                let (volume, volume_cache) = (volume.clone(), Arc::clone(&volume_cache));
                thread::spawn("syncing", move || {
                    let ino = ino(n % 8, n);
                    file(&volume_cache, ino).append(&bytes(ino, 0, 3 * BLOCK)).unwrap();
                    volume_cache.sync_all().unwrap();
                    assert_eq!(volume.on_disk(ino).size, 3 * BLOCK, "seed {seed}");
                })
                .unwrap()
            };
            let threads: Vec<_> = (0..32).map(syncing).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let passes = volume_cache.statistics().passes;
            assert!(passes <= 3 * flushers as u64, "seed {seed}: {passes} passes of {flushers} flushers");
            drop(flusher);
        });
    }
}

/// A clean file costs a sync nothing, on this volume and on another one of the same process.
#[test]
fn a_sync_visits_no_clean_file() {
    let volumes = [0, 1].map(|_| Volume::new(12, 2000));
    let budget = base::memory::Budget::new(64 << 20);
    let caches = volumes.each_ref().map(|volume| {
        Cache::new(volume.clone(), volume.device(), Share::new(&budget, 1), Options::default())
    });
    let files: Vec<_> = (0..500).map(|n| file(&caches[0], ino(n % 8, n))).collect();
    files.iter().for_each(|contents| assert_eq!(contents.write(0, &[1; 100]).unwrap(), 100));
    caches[0].sync_all().unwrap();
    file(&caches[1], 1).write(0, &[1; 100]).unwrap();
    let calls = || OPS.map(|op| volumes[0].calls(op));
    let (passes, before) = (caches[0].statistics().passes, calls());
    let visited = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&visited);
    volumes[0].hooks().each_begun.set(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    for _ in 0..3 {
        caches[0].sync_all().unwrap();
        caches[1].sync_all().unwrap();
    }
    assert_eq!((caches[0].statistics().passes, calls()), (passes, before));
    assert_eq!(visited.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(caches[1].statistics().passes, 1);
}

/// One AG cannot be written. Writers go on as long as another flusher makes progress; they get `EIO` once only data is
/// dirty that cannot be written.
#[test]
fn writers_get_eio_only_if_no_flusher_writes_anything() {
    for seed in 0..20 {
        run(plan(seed), || {
            let volume = Volume::new(12, 4000);
            let hard = 256 << 10;
            let options = Options {
                flushers: Some(2),
                dirty: Some(DirtyLimit::Bytes(hard)),
                interval_ms: 0,
                preallocate: false,
                ..Options::default()
            };
            let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(4 << 20), options);
            let flusher = Flusher::start(&volume_cache).unwrap();
            let [bad, good] = [ino(0, 1), ino(7, 1)].map(|ino| file(&volume_cache, ino));
            bad.write(0, &vec![1; 100 * BLOCK as usize]).unwrap();
            bad.flush(0..u64::MAX).unwrap();
            volume.fail_within(0, 101 * BLOCK);
            bad.write(0, &[2; 8 * BLOCK as usize]).unwrap();
            for n in 0..400 {
                good.write(n * BLOCK, &[3; BLOCK as usize]).unwrap();
            }
            let refused = (0..100).find_map(|n| bad.write(n * BLOCK, &[2; BLOCK as usize]).err());
            assert_eq!(refused.map(|error| error.errno()), Some(errno::EIO), "seed {seed}");
            volume.heal();
            good.write(0, &[3; BLOCK as usize]).unwrap();
            drop(flusher);
            volume_cache.sync_all().unwrap();
        });
    }
}

/// A flusher panics in the pass that a sync requested: the sync fails, and the next one returns.
#[test]
fn a_sync_that_requested_a_panicking_pass_ends() {
    for _ in 0..20 {
        let volume = Volume::new(12, 1000);
        let options = Options { flushers: Some(2), interval_ms: 0, ..Options::default() };
        let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(4 << 20), options);
        let flusher = Flusher::start(&volume_cache).unwrap();
        let [first, second] = [ino(0, 1), ino(7, 1)].map(|ino| file(&volume_cache, ino));
        for _ in 0..2 {
            first.write(0, &[1; 4096]).unwrap();
            first.flush(0..u64::MAX).unwrap();
        }
        // Written in place: only the second one has something to finish.
        first.write(0, &[2; 4096]).unwrap();
        second.write(0, &[2; 4096]).unwrap();
        // Without the message of a panic.
        volume.hooks().finish.set(|| std::panic::resume_unwind(Box::new(())));
        let panics = std::panic::AssertUnwindSafe(|| volume_cache.sync_all());
        // If the flusher is late, this thread runs the pass, and panics.
        assert!(!matches!(std::panic::catch_unwind(panics), Ok(Ok(()))));
        assert_eq!(volume.on_disk(first.file).size, 4096);
        first.write(0, &[3; 4096]).unwrap();
        let _ = volume_cache.sync_all();
        drop(flusher);
    }
}

/// Writers of all groups, syncs and flushers; the device fails for some time.
fn crowd(seed: u64) {
    let mut dice = Dice::new(seed);
    let flushers = dice.next(4) as usize + 1;
    let volume = Volume::new(12, 3000).with_longest_claim(dice.next(30) + 2);
    volume.hooks().delay(Duration::from_millis(dice.next(3) * 500));
    let options = Options {
        flushers: Some(flushers),
        dirty: Some(DirtyLimit::Bytes(200 << 10)),
        interval_ms: 1000,
        expire_s: 0,
        ..Options::default()
    };
    let volume_cache = Cache::new(volume.clone(), volume.device(), Share::alone(2 << 20), options);
    let flusher = Flusher::start(&volume_cache).unwrap();
    let writer = |thread: u64| {
        let files: Vec<_> = (0..3).map(|n| file(&volume_cache, ino(thread * 2 + n, thread + 1))).collect();
        let writes = move || {
            let mut dice = Dice::new(seed << 8 | thread);
            for _ in 0..40 {
                let contents: &Arc<Contents<Volume>> = &files[dice.next(3) as usize];
                let (at, length) = (contents.size(), dice.next(5 * BLOCK));
                // Refused while the device fails.
                let _ = contents.write(at, &bytes(contents.file, at, length));
                if dice.next(8) == 0 {
                    let _ = contents.flush(0..u64::MAX);
                }
            }
            files
        };
        thread::spawn("writer", writes).unwrap()
    };
    let writers: Vec<_> = (0..3).map(writer).collect();
    let syncing = {
        let (volume, volume_cache) = (volume.clone(), Arc::clone(&volume_cache));
        let (fails, syncs) = (dice.next(4) == 0, dice.next(20));
        let syncs = move || {
            for n in 0..syncs {
                if n == 3 && fails {
                    volume.fail(Op::Write, 0, 20);
                }
                let _ = volume_cache.sync_all();
                volume.force();
            }
            volume.heal();
        };
        thread::spawn("syncs", syncs).unwrap()
    };
    let files: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    syncing.join().unwrap();
    volume_cache.sync_all().unwrap();
    for contents in &files {
        let found = volume.contents(&volume.on_disk(contents.file));
        assert_eq!(found.len() as u64, contents.size(), "seed {seed}");
        assert_eq!(wrong(contents.file, 0, &found), None, "seed {seed}");
    }
    drop(flusher);
    assert_eq!(volume_cache.statistics().dirty_bytes, 0);
    files.iter().for_each(|contents| contents.release_preallocation());
    drop(files);
    volume.check_quiet();
}

#[test]
fn several_flushers_lose_nothing() {
    for seed in 0..40 {
        run(plan(seed), || crowd(seed));
    }
}
