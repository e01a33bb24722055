//! Tests of sections, retired objects and the table with real threads. `proof/races` has models of their orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// An entry that counts how many of its kind are alive.
struct Entry {
    key: u64,
    value: u64,
    used: AtomicBool,
    gone: AtomicBool,
    alive: Arc<AtomicUsize>,
}

impl Entry {
    fn new(key: u64, value: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        let (used, gone) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { key, value, used, gone, alive: Arc::clone(alive) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        assert!(self.value != u64::MAX, "freed twice");
        self.value = u64::MAX;
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cached for Entry {
    fn take_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn removed(&self) {
        assert!(!self.gone.swap(true, Ordering::Relaxed), "removed twice");
    }
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn value(table: &SetTable<Entry>, key: u64) -> Option<u64> {
    read(|section| table.find(section, hash(key), |entry| entry.key == key).map(|entry| entry.value))
}

#[test]
fn a_table_finds_what_was_inserted_last_and_not_removed() {
    let alive = Arc::new(AtomicUsize::new(0));
    let table = SetTable::new(10_000);
    for round in 0..2 {
        for key in 0..300 {
            table.insert(hash(key), Entry::new(key, key + round, &alive), |entry| entry.key == key);
        }
    }
    (0..300).for_each(|key| assert_eq!(value(&table, key), Some(key + 1)));
    (0..300).step_by(2).for_each(|key| {
        table.remove(hash(key), |entry| entry.key == key);
    });
    (0..300).for_each(|key| assert_eq!(value(&table, key).is_some(), key % 2 == 1, "{key}"));
    assert_eq!(table.len(), 150);
    table.clear();
    assert!(table.is_empty());
    assert_eq!(alive.load(Ordering::Relaxed), 0, "nothing outlives its removal");
}

#[test]
fn a_full_bucket_evicts_an_entry_that_was_not_used() {
    let alive = Arc::new(AtomicUsize::new(0));
    let table = SetTable::new(1);
    let same_bucket = |key: u64| key << 40;
    let find = |key| {
        read(|section| {
            let found = table.find(section, same_bucket(key), |entry: &Entry| entry.key == key);
            found.inspect(|entry| entry.used.store(true, Ordering::Relaxed)).is_some()
        })
    };
    for key in 0..1000 {
        table.insert(same_bucket(key), Entry::new(key, key, &alive), |entry| entry.key == key);
        // The first is used always, the others never again.
        assert!(
            find(0)
                && (key == 0
                    || read(|section| {
                        table.find(section, same_bucket(key), |entry| entry.key == key).is_some()
                    })),
            "{key}"
        );
    }
    assert_eq!(table.len(), 7);
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// Threads insert and remove entries while others look them up. A reader must never see an entry that was freed, nor a
/// wrong one; and removed entries do not accumulate.
#[test]
fn readers_never_see_a_freed_entry() {
    let alive = Arc::new(AtomicUsize::new(0));
    let table = SetTable::new(64);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut found = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        for key in 0..32 {
                            read(|section| {
                                let entry = table.find(section, hash(key), |entry: &Entry| entry.key == key);
                                if let Some(entry) = entry {
                                    std::thread::yield_now();
                                    assert_eq!(entry.value % 1000, key);
                                    found += 1;
                                }
                            });
                        }
                    }
                    found
                })
            })
            .collect();
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (table, alive) = (&table, &alive);
                scope.spawn(move || {
                    for round in 0..20_000u64 {
                        let key = round.wrapping_mul(7).wrapping_add(writer) % 32;
                        if round % 3 == 0 {
                            table.remove(hash(key), |entry| entry.key == key);
                        } else {
                            let entry = Entry::new(key, round * 1000 + key, alive);
                            table.insert(hash(key), entry, |entry| entry.key == key);
                        }
                        assert!(alive.load(Ordering::Relaxed) < 20_000, "removed entries accumulate");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>() > 0);
    });
    table.clear();
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn a_grace_period_waits_for_the_sections_that_ran_when_it_began() {
    let (entered, leave) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            read(|_| {
                read(|_| ());
                entered.store(true, Ordering::Release);
                while !leave.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
        });
        while !entered.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut grace_period = grace_period();
        assert!(!grace_period.is_over());
        leave.store(true, Ordering::Release);
        reader.join().unwrap();
        // It may wait for sections of other tests.
        while !grace_period.is_over() {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_slot_has_one_object_at_a_time() {
    let (slot, retired) = (Slot::default(), Retired::default());
    assert!(slot.set(1) && !slot.set(2) && slot.is_set());
    assert_eq!(read(|section| slot.get(section).copied()), Some(1));
    retired.push(slot.take().unwrap());
    assert!(slot.take().is_none() && read(|section| slot.get(section).is_none()));
    assert!(slot.set(3));
    retired.drain();
}

/// Objects may be read and dropped by destructors of other thread variables, when this module's no longer exist.
#[test]
fn sections_work_while_a_thread_ends() {
    struct AtEnd(Arc<SetTable<Entry>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            assert_eq!(value(&self.0, 5), Some(50));
        }
    }
    thread_local!(static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) });
    let table = Arc::new(SetTable::new(64));
    table.insert(hash(5), Entry::new(5, 50, &Arc::default()), |_| false);
    let of_thread = Arc::clone(&table);
    std::thread::spawn(move || {
        AT_END.set(Some(AtEnd(Arc::clone(&of_thread))));
        assert_eq!(value(&of_thread, 5), Some(50));
    })
    .join()
    .unwrap();
    assert_eq!(Arc::strong_count(&table), 1);
}

/// The list of readers had a mutex. A simulated thread that found it taken by a thread outside of the simulation waited
/// for the scheduler, which does not know that thread: the run ended as a deadlock.
#[test]
#[cfg(debug_assertions)]
fn threads_outside_of_a_simulation_do_not_stop_it() {
    use crate::simulation::{SchedulingStrategy, SimulationOptions, run};
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let outside = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::spawn(|| read(|_| ())).join().unwrap();
                (0..1000).for_each(|_| drop(grace_period()));
            }
        });
        for seed in 0..5 {
            let options = SimulationOptions::new(seed, SchedulingStrategy::Random { per_mille: 300 });
            run(options, || (0..20_000).for_each(|_| drop(grace_period())));
        }
        stop.store(true, Ordering::Relaxed);
        outside.join().unwrap();
    });
}
