//! Read sections, the table that is read in them, and metadata beside it.

use std::sync::Arc;

use races::rcu::{Cached, Retired, SetTable, Slot, read};
use races::seqlock::SeqLock;
use races::{percpu, try_fair_orders, try_orders};
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use shuttle::thread;

/// An object that says when it is freed.
struct Object {
    number: usize,
    freed: Arc<[AtomicBool; 3]>,
}

impl Drop for Object {
    fn drop(&mut self) {
        assert!(!self.freed[self.number].swap(true, SeqCst), "freed twice");
    }
}

#[test]
fn an_object_is_not_freed_in_a_section_that_found_it() {
    try_fair_orders(|| {
        let freed = Arc::new(std::array::from_fn(|_| AtomicBool::new(false)));
        let object = |number| Object { number, freed: Arc::clone(&freed) };
        let shared = Arc::new((Slot::default(), Retired::default()));
        shared.0.set(object(0));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (shared, freed) = (Arc::clone(&shared), Arc::clone(&freed));
                thread::spawn(move || {
                    for _ in 0..2 {
                        read(|section| {
                            if let Some(found) = shared.0.get(section) {
                                let number = found.number;
                                thread::yield_now();
                                assert!(!freed[number].load(SeqCst), "freed while it is read");
                            }
                        });
                    }
                })
            })
            .collect();
        for number in 1..3 {
            percpu::override_current(Some(number % 2));
            shared.1.push(shared.0.take().unwrap());
            shared.0.set(object(number));
            shared.1.drain();
            assert!(freed[number - 1].load(SeqCst));
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// An entry of the table.
struct Entry {
    key: usize,
    removed: AtomicBool,
}

impl Entry {
    fn new(key: usize) -> Self {
        Self { key, removed: AtomicBool::new(false) }
    }
}

impl Cached for Entry {
    fn take_use(&self) -> bool {
        false
    }

    fn removed(&self) {
        self.removed.store(true, SeqCst);
    }
}

#[test]
fn an_entry_is_found_while_others_of_its_hash_come_and_go() {
    const HASH: u64 = 0x4200_0000_0000_0000;
    try_fair_orders(|| {
        let table = Arc::new(SetTable::new(1));
        table.insert(HASH, Entry::new(0), |_| false);
        let writers: Vec<_> = (1..3)
            .map(|key| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let matches = |entry: &Entry| entry.key == key;
                    table.insert(HASH, Entry::new(key), matches);
                    table.insert(HASH, Entry::new(key), matches);
                    table.remove(HASH, matches);
                    read(|section| assert!(table.find(section, HASH, matches).is_none()));
                })
            })
            .collect();
        for _ in 0..3 {
            let found = |key| {
                read(|section| {
                    let matches = |entry: &Entry| entry.key == key;
                    table.find(section, HASH, matches).is_some_and(|entry| entry.key == key)
                })
            };
            assert!(found(0) && !found(3));
            found(1);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(table.len(), 1);
    });
}

/// A path walk: it finds a name, reads the metadata of its file, and then checks that the name was not removed. It must
/// not return metadata of a moment when the name referred to another file.
#[test]
fn metadata_that_changed_after_a_removal_is_not_returned() {
    try_fair_orders(|| {
        let shared = Arc::new((SetTable::new(1), SeqLock::default()));
        shared.0.insert(7, Entry::new(0), |_| false);
        shared.1.publish([0]);
        let writer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.0.remove(7, |_| true);
                shared.1.invalidate();
                shared.1.publish([1]);
            }
        });
        let found = read(|section| {
            let entry = shared.0.find(section, 7, |_| true)?;
            let words = shared.1.read()?;
            (!entry.removed.load(SeqCst)).then_some(words)
        });
        assert!(found.is_none_or(|words| words == [0]), "{found:?}");
        writer.join().unwrap();
    });
}

#[test]
fn words_are_those_of_one_publication_that_was_not_invalidated_before() {
    try_orders(|| {
        let shared = Arc::new((SeqLock::default(), AtomicU64::new(0)));
        shared.0.publish([0, 0]);
        let writer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for n in 1..3 {
                    shared.0.invalidate();
                    // The change can be seen.
                    shared.1.store(n, SeqCst);
                    shared.0.publish([n, n]);
                }
            }
        });
        for _ in 0..2 {
            let changed = shared.1.load(SeqCst);
            if let Some([first, second]) = shared.0.read() {
                assert!(first == second && first >= changed, "{first} {second} {changed}");
            }
        }
        writer.join().unwrap();
    });
}
