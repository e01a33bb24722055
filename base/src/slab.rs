//! Objects that are found by a key, such as the open files of a mount: adding, finding and removing one stores to no
//! memory that users of another object read or write.
//!
//! Each CPU has a list of entries, which grows and never moves. An entry has an object, or is free; free entries are in
//! lists of the CPUs. A key has the number of an entry, and how often the entry was used before: the key of an object
//! that was removed finds nothing, also when the entry has another object.
//!
//! # Invariants
//! - An entry is free, or has an object, or is between the two and known to one thread only.
//! - No two objects of a slab ever have the same key. An entry that was used 2^32 times is not used again.
//!
//! # Locking
//! An entry's lock is held while the object is cloned or replaced, and never while one is dropped.

use std::fmt;
use std::sync::OnceLock;

use crate::append_list::AppendList;
use crate::lock::{Mutex, Rank, SpinLock};
use crate::percpu::{self, PerCpu};

/// Free entries that a CPU keeps although they are from lists of others. More are returned, so that a CPU that only
/// removes what another one adds does not collect all of them.
const KEPT: usize = 64;

/// Objects by key: see the module.
pub struct Slab<T> {
    parts: PerCpu<Part<T>>,
    /// Bits of an entry's number that are the number of its part.
    part_bits: u32,
}

struct Part<T> {
    entries: AppendList<Entry<T>>,
    /// Held while an entry is added.
    growing: Mutex<()>,
    /// Numbers of free entries, of this part or others.
    free: SpinLock<Vec<u32>>,
}

/// An entry has cache lines of its own.
#[repr(align(64))]
struct Entry<T>(SpinLock<State<T>>);

/// An object that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// The key by which the object is found. It is not 0.
    pub key: u64,
    /// Bytes by which the slab grew to take the object, which are part of [`Slab::bytes`].
    pub grown: usize,
}

struct State<T> {
    /// Number of earlier objects, plus 1.
    generation: u32,
    object: Option<T>,
}

impl<T: Clone> Default for Slab<T> {
    fn default() -> Self {
        Self::new(percpu::available())
    }
}

impl<T: Clone> Slab<T> {
    /// Memory of an entry at most: the segments of a list double, and so do lists of free entries.
    const GROWTH: usize = 2 * (size_of::<OnceLock<Entry<T>>>() + size_of::<u32>());

    /// Bytes of all entries. They are freed with the slab.
    pub fn bytes(&self) -> usize {
        self.entries() * Self::GROWTH
    }

    fn entries(&self) -> usize {
        self.parts.iter().map(|part| part.entries.len()).sum()
    }

    /// An empty slab with this number of parts.
    fn new(parts: usize) -> Self {
        let part = |_| Part {
            entries: AppendList::new(Box::new([])),
            growing: Mutex::new(Rank::Leaf, ()),
            free: SpinLock::new(Rank::Leaf, Vec::new()),
        };
        let parts = PerCpu::new(parts, part);
        let part_bits = parts.slots().next_power_of_two().ilog2();
        Self { parts, part_bits }
    }

    /// Adds an object. `None` if there are too many objects: some billions.
    pub fn insert(&self, object: T) -> Option<Inserted> {
        let (_, part) = self.parts.local();
        let free = part.free.lock().pop();
        let (number, grown) = match free {
            Some(number) => (number, 0),
            None => (self.add_entry()?, Self::GROWTH),
        };
        let mut state = self.entry(number)?.0.lock();
        state.object = Some(object);
        let key = u64::from(state.generation) << u32::BITS | u64::from(number);
        Some(Inserted { key, grown })
    }

    /// The object with this key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<T> {
        let (generation, number) = split(key);
        let state = self.entry(number)?.0.lock();
        state.object.as_ref().filter(|_| state.generation == generation).cloned()
    }

    /// Removes the object with this key.
    pub fn remove(&self, key: u64) -> Option<T> {
        let (generation, number) = split(key);
        let mut state = self.entry(number)?.0.lock();
        if state.generation != generation {
            return None;
        }
        let object = state.object.take()?;
        state.generation = generation.wrapping_add(1);
        drop(state);
        if generation != u32::MAX {
            self.add_free(number);
        }
        Some(object)
    }

    #[inline]
    fn entry(&self, number: u32) -> Option<&Entry<T>> {
        self.part(number)?.entries.get((number >> self.part_bits) as usize)
    }

    /// The part that has an entry.
    #[inline]
    fn part(&self, number: u32) -> Option<&Part<T>> {
        let part = number & ((1 << self.part_bits) - 1);
        self.parts.iter().nth(part as usize)
    }

    /// Adds an entry to the part of this CPU, for the caller.
    #[cold]
    fn add_entry(&self) -> Option<u32> {
        let (cpu, part) = self.parts.local();
        let _growing = part.growing.lock();
        let index = u32::try_from(part.entries.len()).ok()?;
        let first = index.checked_mul(1 << self.part_bits)?;
        let state = State { generation: 1, object: None };
        part.entries.push(Entry(SpinLock::new(Rank::Leaf, state))).ok()?;
        Some(first | cpu as u32) // less than the number of parts
    }

    fn add_free(&self, number: u32) {
        let (_, local) = self.parts.local();
        let mut free = local.free.lock();
        if free.len() < KEPT {
            free.push(number);
            return;
        }
        drop(free);
        if let Some(part) = self.part(number) {
            part.free.lock().push(number);
        }
    }
}

/// Generation and number of the entry.
fn split(key: u64) -> (u32, u32) {
    ((key >> u32::BITS) as u32, key as u32)
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slab")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::percpu::override_current;

    #[test]
    fn a_key_finds_its_object_only() {
        for parts in [1, 2, 3, 8] {
            let slab = Slab::new(parts);
            let add = |n| {
                override_current(Some(n % parts));
                (slab.insert(n).unwrap().key, n)
            };
            let keys: Vec<(u64, usize)> = (0..1000).map(add).collect();
            for (key, n) in &keys {
                assert_eq!(slab.get(*key), Some(*n));
                for wrong in [0, 1, u64::MAX, key + (1 << 32), key - (1 << 32), key & 0xffff_ffff] {
                    assert_eq!((slab.get(wrong), slab.remove(wrong)), (None, None));
                }
            }
            for (key, n) in &keys {
                assert_eq!((slab.remove(*key), slab.remove(*key), slab.get(*key)), (Some(*n), None, None));
            }
            assert_eq!(slab.entries(), 1000);
        }
        override_current(None);
    }

    /// A request with the handle of a file that was closed would have been answered for another file.
    #[test]
    fn an_entry_that_is_used_again_has_another_key() {
        let slab = Slab::new(1);
        let keys: Vec<u64> = (0..100)
            .map(|n| {
                let key = slab.insert(n).unwrap().key;
                assert_eq!(slab.remove(key), Some(n));
                key
            })
            .collect();
        let last = slab.insert(100).unwrap().key;
        assert!(keys.iter().all(|key| (slab.get(*key), slab.remove(*key)) == (None, None)));
        assert_eq!((slab.get(last), slab.entries()), (Some(100), 1));
    }

    #[test]
    fn an_entry_without_new_keys_is_not_used_again() {
        let slab = Slab::new(1);
        let first = slab.insert(1).unwrap().key;
        slab.entry(0).unwrap().0.lock().generation = u32::MAX;
        let key = first | u64::from(u32::MAX) << 32;
        assert_eq!(slab.remove(key), Some(1));
        let next = slab.insert(2).unwrap().key;
        assert_ne!(next as u32, key as u32);
        assert_eq!((slab.get(key), slab.get(first), slab.get(next)), (None, None, Some(2)));
    }

    /// The memory of entries stays when their objects are removed, and is used again.
    #[test]
    fn a_slab_grows_by_new_entries() {
        let slab = Slab::new(1);
        let first: Vec<_> = (0..100).map(|n| slab.insert(n).unwrap()).collect();
        assert!(first.iter().all(|added| added.grown == Slab::<i32>::GROWTH));
        assert!(first.iter().all(|added| slab.remove(added.key).is_some()));
        assert!((0..100).all(|n| slab.insert(n).unwrap().grown == 0));
        assert_eq!(slab.bytes(), first.iter().map(|added| added.grown).sum());
    }

    /// Objects that one CPU adds and another one removes.
    #[test]
    fn free_entries_are_used_again() {
        let slab = Slab::new(2);
        for n in 0..10_000 {
            override_current(Some(0));
            let key = slab.insert(n).unwrap().key;
            override_current(Some(1));
            assert_eq!(slab.remove(key), Some(n));
        }
        assert!(slab.entries() <= KEPT + 1, "{}", slab.entries());
        override_current(None);
    }

    #[test]
    fn objects_are_dropped_when_they_are_removed_and_with_the_slab() {
        let object = Arc::new(());
        let slab = Slab::new(2);
        let key = slab.insert(Arc::clone(&object)).unwrap().key;
        slab.insert(Arc::clone(&object)).unwrap();
        let found = slab.get(key);
        assert_eq!(Arc::strong_count(&object), 4);
        drop((slab.remove(key), found));
        assert_eq!(Arc::strong_count(&object), 2);
        drop(slab);
        assert_eq!(Arc::strong_count(&object), 1);
    }

    #[test]
    fn threads_add_find_and_remove_objects() {
        let slab = Slab::new(3);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let slab = &slab;
                scope.spawn(move || {
                    override_current(Some(thread as usize));
                    let mut keys = Vec::new();
                    for n in 0..5000 {
                        let object = (thread, n);
                        keys.push((slab.insert(object).unwrap().key, object));
                        let (key, object) = keys[n as usize * 7 % keys.len()];
                        assert_eq!(slab.get(key), Some(object));
                        if n % 3 != 0 {
                            let (key, object) = keys.swap_remove(n as usize * 5 % keys.len());
                            assert_eq!((slab.remove(key), slab.get(key)), (Some(object), None));
                        }
                        // Other threads' objects, and ones that are gone.
                        slab.get(key + (n % 5));
                    }
                    keys.iter().for_each(|(key, object)| assert_eq!(slab.remove(*key), Some(*object)));
                });
            }
        });
    }
}
