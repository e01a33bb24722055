//! Which files a pass writes, when, and in which order.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use base::memory::Share;
use base::percpu;
use base::time::Clock;

use super::{Dice, Hands, cache, file};
use crate::dirty_files::DirtyLists;
use crate::testing::{Op, Volume};
use crate::{
    ByAge, ByInode, ByPlace, Cache, DirtyFile, DirtyTracking, Due, Options, WritebackCandidate,
    WritebackOrder,
};

const SECOND: u64 = 1_000_000_000;

/// Returns a cache with a clock.
fn timed(volume: &Volume, options: Options) -> (Arc<Cache<Volume>>, Arc<Hands>) {
    let hands = Arc::new(Hands::default());
    hands.0.store(1000, SeqCst);
    let clock: Arc<dyn Clock> = Arc::clone(&hands) as _;
    let options = Options { clock, preallocate: false, ..options };
    (Cache::new(volume.clone(), volume.device(), Share::alone(16 << 20), options), hands)
}

/// Against a plain list of all dirty files.
#[test]
fn lists_give_what_is_due() {
    for seed in 0..30 {
        let mut dice = Dice::new(seed);
        let volume = Volume::new(12, 10);
        let volume_cache = cache(&volume, 16 << 20);
        let files: Vec<_> = (0..60).map(|ino| file(&volume_cache, ino)).collect();
        let lists = DirtyLists::new(3, 2);
        // Since when each file is dirty.
        let mut model = BTreeMap::new();
        let mut now = 100;
        for _ in 0..600 {
            now += dice.next(5);
            percpu::override_current(Some(dice.next(3) as usize));
            let which = dice.next(60);
            let stretch = (which % 2) as usize;
            let contents = Arc::clone(&files[which as usize]);
            match dice.next(10) {
                0..=5 if !model.contains_key(&which) => {
                    model.insert(which, now);
                    lists.add(stretch, DirtyFile { contents, since: now });
                }
                6 | 7 if !model.contains_key(&which) => {
                    let since = now - dice.next(100);
                    model.insert(which, since);
                    lists.put_back(stretch, DirtyFile { contents, since });
                }
                8 | 9 => {
                    let due = (dice.next(8) > 0).then(|| Due::at(now, dice.next(60)));
                    let taken = lists.take(stretch, due);
                    let found: BTreeMap<_, _> =
                        taken.iter().map(|taken| (taken.ino().get(), taken.since())).collect();
                    assert_eq!(found.len(), taken.len(), "a file was taken twice");
                    let is_due = |since: u64| due.is_none_or(|due| due.includes(since));
                    let wanted = model
                        .extract_if(.., |which, since| which % 2 == stretch as u64 && is_due(*since))
                        .collect();
                    assert_eq!(found, wanted, "seed {seed}");
                }
                _ => {}
            }
        }
        percpu::override_current(None);
    }
}

/// After the clock was set back, files that had become dirty before were written only when it showed their time again.
#[test]
fn a_clock_that_is_set_back_delays_nothing() {
    let volume = Volume::new(12, 1000);
    let (volume_cache, hands) = timed(&volume, Options::default());
    let [first, second] = [1, 2].map(|ino| file(&volume_cache, ino));
    first.write(0, &[1; 5000]).unwrap();
    hands.0.store(10, SeqCst);
    second.write(0, &[1; 5000]).unwrap();
    volume_cache.work();
    assert_eq!(volume.on_disk(1).size, 5000);
    hands.0.store(41, SeqCst);
    volume_cache.work();
    assert_eq!(volume.on_disk(2).size, 5000);
}

#[test]
fn old_files_are_written_and_failed_ones_keep_their_age() {
    let volume = Volume::new(12, 1000);
    let (volume_cache, hands) = timed(&volume, Options::default());
    let (old, young) = (file(&volume_cache, 1), file(&volume_cache, 2));
    old.write(0, &[1; 5000]).unwrap();
    hands.0.store(1020, SeqCst);
    young.write(0, &[1; 5000]).unwrap();
    // Another write does not change its age.
    old.write(0, &[2; 5000]).unwrap();
    volume_cache.work();
    assert_eq!(volume.writes(), 0);
    hands.0.store(1031, SeqCst);
    volume.fail(Op::Write, 0, 1);
    volume_cache.work();
    assert_eq!(volume.on_disk(1).size, 0);
    volume_cache.work();
    assert_eq!((volume.on_disk(1).size, volume.on_disk(2).size), (5000, 0));
    hands.0.store(1051, SeqCst);
    volume_cache.work();
    assert_eq!(volume.on_disk(2).size, 5000);
}

/// A file that was written to during its writeback was taken to be dirty since the end of the pass, however long that
/// took; after a failure, since another writer's next write, if that came at the wrong moment.
#[test]
fn a_file_that_becomes_dirty_during_writeback_is_dirty_since_it_began() {
    for fails in [false, true] {
        let volume = Volume::new(12, 1000);
        let (volume_cache, hands) = timed(&volume, Options::default());
        let contents = file(&volume_cache, 1);
        contents.write(0, &[1; 3 * 4096]).unwrap();
        volume_cache.sync_all().unwrap();
        contents.write(0, &[1; 4096]).unwrap();
        hands.0.store(1035, SeqCst);
        let (writer, writer_hands) = (Arc::clone(&contents), Arc::clone(&hands));
        volume.hooks().mapped.set(move || {
            // Another thread, as this one holds locks. The pass takes 20 seconds from here.
            std::thread::spawn(move || writer.write(8192, &[1; 4096]).unwrap()).join().unwrap();
            writer_hands.0.store(1055, SeqCst);
        });
        volume.fail(Op::Write, 0, i64::from(fails));
        volume_cache.work();
        let [listed] = &volume_cache.dirty_files.take(0, None)[..] else { panic!("one file is dirty") };
        assert_eq!(listed.since(), if fails { 1000 } else { 1035 } * SECOND);
    }
}

/// Each write of a pass makes its file dirty again: the pass ends nevertheless, and so does a sync.
#[test]
fn a_sync_ends_though_a_writer_continues_forever() {
    let volume = Volume::new(12, 2000);
    let volume_cache = cache(&volume, 16 << 20);
    let files = [1, 2, 3].map(|ino| file(&volume_cache, ino));
    for contents in &files {
        contents.write(0, &[1; 8 * 4096]).unwrap();
    }
    let written = Arc::new(Mutex::new(0u64));
    let (writers, count) = (files.clone(), Arc::clone(&written));
    volume.hooks().each_begun.set(move || {
        let (writers, count) = (writers.clone(), Arc::clone(&count));
        // Another thread, as this one holds locks.
        let writes = move || {
            let mut count = count.lock().unwrap();
            *count += 1;
            for contents in &writers {
                contents.write((*count % 8) * 4096, &[2; 4096]).unwrap();
            }
        };
        std::thread::spawn(writes).join().unwrap();
    });
    for _ in 0..5 {
        volume_cache.sync_all().unwrap();
        assert!(volume_cache.statistics().dirty_bytes > 0);
    }
    volume.hooks().each_begun.clear();
    assert!(*written.lock().unwrap() > 5);
    volume_cache.sync_all().unwrap();
    assert_eq!(volume_cache.statistics().dirty_bytes, 0);
}

/// Writes blocks of files with these numbers at these times, and returns the order in which they were written.
fn order_of(order: impl WritebackOrder + 'static, files: &[(u64, i64)]) -> Vec<u64> {
    let volume = Volume::new(12, 1000);
    // Each file is a batch.
    let options = Options { order: Arc::new(order), pass_bytes: 4096, ..Options::default() };
    let (volume_cache, hands) = timed(&volume, options);
    let contents: BTreeMap<_, _> = files.iter().map(|(ino, _)| (*ino, file(&volume_cache, *ino))).collect();
    for (ino, time) in files {
        hands.0.store(*time, SeqCst);
        contents[ino].write(0, &[1; 4096]).unwrap();
    }
    volume_cache.sync_all().unwrap();
    let place_of = |ino: &u64| volume.on_disk(*ino).map[&0].0 << 12;
    let owners: BTreeMap<_, _> = contents.keys().map(|ino| (place_of(ino), *ino)).collect();
    volume.take_offsets().iter().map(|offset| owners[offset]).collect()
}

#[test]
fn files_are_written_in_the_chosen_order() {
    let files = [(3, 10), (9, 20), (4, 30), (5, 40)];
    assert_eq!(order_of(ByInode, &files), [3, 4, 5, 9]);
    assert_eq!(order_of(ByAge, &files), [3, 9, 4, 5]);
    // New files get blocks in the order of their numbers.
    assert_eq!(order_of(ByPlace, &files), [3, 4, 5, 9]);
}

/// An order of the test: first those with odd numbers, downwards.
#[derive(Debug)]
struct OddFirst;

impl WritebackOrder for OddFirst {
    fn key(&self, file: &dyn WritebackCandidate) -> [u64; 2] {
        let ino = file.ino().get();
        [(ino + 1) % 2, u64::MAX - ino]
    }
}

#[test]
fn the_place_on_disk_decides_and_not_the_number() {
    let files = [(1, 10), (2, 10), (3, 10), (4, 10), (5, 10)];
    assert_eq!(order_of(OddFirst, &files), [5, 3, 1, 4, 2]);
    let volume = Volume::new(12, 1000);
    let options = Options { order: Arc::new(ByPlace), pass_bytes: 4096, ..Options::default() };
    let (volume_cache, _) = timed(&volume, options);
    // Written one by one: the higher the number, the lower the place.
    let contents = [5, 4, 3, 2, 1].map(|ino| file(&volume_cache, ino));
    for contents in &contents {
        contents.write(0, &[1; 4096]).unwrap();
        contents.flush(0..u64::MAX).unwrap();
    }
    volume.take_offsets();
    // New blocks come last.
    file(&volume_cache, 0).write(0, &[1; 4096]).unwrap();
    for contents in contents.iter().rev() {
        contents.write(0, &[2; 4096]).unwrap();
    }
    volume_cache.sync_all().unwrap();
    let offsets = volume.take_offsets();
    assert_eq!(offsets.len(), 6);
    assert!(offsets.is_sorted(), "{offsets:?}");
}

/// Another implementation: one map for all CPUs, which counts what is taken.
#[derive(Debug, Default)]
struct OneMap {
    files: Mutex<BTreeMap<(u64, u64), DirtyFile<Volume>>>,
    taken: Arc<Mutex<Vec<usize>>>,
}

impl DirtyTracking<Volume> for OneMap {
    fn add(&self, _: usize, file: DirtyFile<Volume>) {
        let key = (file.since(), file.ino().get());
        assert!(self.files.lock().unwrap().insert(key, file).is_none(), "tracked twice");
    }

    fn put_back(&self, _: usize, file: DirtyFile<Volume>) {
        self.add(0, file);
    }

    fn take(&self, _: usize, due: Option<Due>) -> Vec<DirtyFile<Volume>> {
        let is_due = |since: u64| due.is_none_or(|due| due.includes(since));
        let mut files = self.files.lock().unwrap();
        let keys: Vec<_> = files.keys().filter(|key| is_due(key.0)).copied().collect();
        self.taken.lock().unwrap().push(keys.len());
        keys.iter().filter_map(|key| files.remove(key)).collect()
    }
}

#[test]
fn a_volume_can_bring_its_own_tracking() {
    let volume = Volume::new(12, 1000);
    let tracking = OneMap::default();
    let taken = Arc::clone(&tracking.taken);
    let memory = Share::alone(16 << 20);
    let (device, options) = (volume.device(), Options { flushers: Some(1), ..Options::default() });
    let tracking = |_| Box::new(tracking) as _;
    let volume_cache = Cache::with_tracking(volume.clone(), device, memory, options, tracking);
    let files = [1, 2, 3].map(|ino| file(&volume_cache, ino));
    for contents in &files {
        contents.write(0, &[1; 5000]).unwrap();
        contents.write(0, &[2; 9000]).unwrap();
    }
    // None of them is old.
    volume_cache.work();
    // The second sync asks for none.
    volume_cache.sync_all().unwrap();
    volume_cache.sync_all().unwrap();
    assert_eq!(*taken.lock().unwrap(), [0, 3]);
    assert_eq!([1, 2, 3].map(|ino| volume.on_disk(ino).size), [9000; 3]);
    drop(files);
    volume.check_quiet();
}
