//! A list to which threads append while others read it.
//!
//! The initial entries are a slice. Later entries are in segments, each twice as long as the one before, that never
//! move: a reader takes no lock, and references stay valid for as long as the list lives.
//!
//! # Invariants
//! Entries are never removed or replaced. An entry is visible before [`len`](AppendList::len) counts it.

use std::sync::OnceLock;

use crate::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};

/// One segment for each bit of a `usize`: no list can need more.
const SEGMENTS: usize = usize::BITS as usize;

/// Each slot of a segment is set once.
type Segment<T> = OnceLock<Box<[OnceLock<T>]>>;

/// An append-only list: see the module.
#[derive(Debug)]
pub struct AppendList<T> {
    first: Box<[T]>,
    more: Box<[Segment<T>]>,
    length: AtomicUsize,
}

impl<T> AppendList<T> {
    /// A list with initial entries.
    pub fn new(first: Box<[T]>) -> Self {
        let length = AtomicUsize::new(first.len());
        Self { first, more: (0..SEGMENTS).map(|_| OnceLock::new()).collect(), length }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.length.load(Acquire)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at an index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            None => self.get_later(index),
            found => found,
        }
    }

    fn get_later(&self, index: usize) -> Option<&T> {
        let (segment, at) = place(index - self.first.len());
        self.more.get(segment)?.get()?.get(at)?.get()
    }

    /// Iterates over the entries that exist now, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Appends an entry. Callers must serialize appends: of two concurrent ones, one may fail.
    ///
    /// # Errors
    /// The entry, if a concurrent append took its slot.
    pub fn push(&self, entry: T) -> Result<(), T> {
        let index = self.len();
        let (segment, at) = place(index - self.first.len());
        let Some(slots) = self.more.get(segment) else { return Err(entry) };
        let slots = slots.get_or_init(|| (0..1usize << segment).map(|_| OnceLock::new()).collect());
        let Some(slot) = slots.get(at) else { return Err(entry) };
        slot.set(entry)?;
        self.length.store(index + 1, Release);
        Ok(())
    }
}

/// Segment and slot of the entry with this index after the initial ones.
fn place(later: usize) -> (usize, usize) {
    // Counted from 1, the highest bit selects the segment, the other bits the slot.
    let segment = (later + 1).ilog2() as usize;
    (segment, later + 1 - (1 << segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn entries_do_not_move() {
        let list = AppendList::new(vec![0, 1, 2].into_boxed_slice());
        let early = list.get(1).unwrap();
        for n in 3..1000 {
            assert_eq!(list.get(n), None);
            list.push(n).unwrap();
        }
        assert_eq!(list.iter().copied().collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
        assert!(std::ptr::eq(early, list.get(1).unwrap()));
        assert_eq!((list.get(1000), list.get(usize::MAX - 8)), (None, None));
    }

    #[test]
    fn readers_see_complete_lists_during_appends() {
        let list = AppendList::new(Box::new([]));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // Bounded: after a failed append the list never becomes complete.
                    for _ in 0..200 {
                        let seen = list.len();
                        assert!((0..seen).all(|n| list.get(n) == Some(&n)));
                        thread::yield_now();
                    }
                });
            }
            (0..5000).for_each(|n| list.push(n).unwrap());
        });
        assert_eq!(list.iter().count(), 5000);
    }
}
