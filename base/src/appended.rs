//! A list that grows while others read it.
//!
//! What was there when the list was made is reached as in a slice. What came later lies in segments, each twice as long
//! as the one before, that never move: a reader takes no lock, and keeps what it found for as long as the list lives.
//!
//! # Invariants
//! Nothing is ever taken out, or put in another's place. An entry is there before [`len`](Appended::len) counts it.

use std::sync::OnceLock;

use crate::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};

/// Segments are as many as a `usize` has bits: no list can need more.
const SEGMENTS: usize = usize::BITS as usize;

/// One slot of a segment is filled once.
type Segment<T> = OnceLock<Box<[OnceLock<T>]>>;

/// See the module.
#[derive(Debug)]
pub struct Appended<T> {
    first: Box<[T]>,
    more: Box<[Segment<T>]>,
    length: AtomicUsize,
}

impl<T> Appended<T> {
    /// A list that begins with these.
    pub fn new(first: Box<[T]>) -> Self {
        let length = AtomicUsize::new(first.len());
        Self { first, more: (0..SEGMENTS).map(|_| OnceLock::new()).collect(), length }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.length.load(Acquire)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
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

    /// All of them, in order; of those that come meanwhile none.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Puts one more at the end. Callers take turns: of two at once, one may get its entry back.
    ///
    /// # Errors
    /// The entry, where another took its place.
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

/// Segment and slot of the entry of this number behind the first ones.
fn place(later: usize) -> (usize, usize) {
    // Counted from 1, the highest bit names the segment, and the others the slot.
    let segment = (later + 1).ilog2() as usize;
    (segment, later + 1 - (1 << segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn entries_stay_where_they_are() {
        let list = Appended::new(vec![0, 1, 2].into_boxed_slice());
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
    fn readers_see_whole_lists_while_one_appends() {
        let list = Appended::new(Box::new([]));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // Not until it is complete: where an append fails, that never comes.
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
