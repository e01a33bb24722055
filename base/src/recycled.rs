//! Memory that a thread uses again and again: what one user leaves, the thread's next one begins with.
//!
//! Something large that lives for a moment is moved about by its address alone, and costs no allocation.
//!
//! # Invariants
//! A thread keeps at most one spare of a type. Whoever finds none, as another user of the same thread is not done yet,
//! gets new memory.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

/// What can be used again.
pub trait Recycle: Default + 'static {
    /// Where a thread keeps a spare.
    fn spare() -> &'static LocalKey<Cell<Option<Box<Self>>>>;

    /// Becomes as by default, but for memory that it keeps. Whether it is worth being kept.
    fn recycle(&mut self) -> bool;
}

/// A `T` in memory that the thread's last one has left.
pub struct Recycled<T: Recycle>(ManuallyDrop<Box<T>>);

impl<T: Recycle> Recycled<T> {
    /// One that is as by default.
    #[inline]
    pub fn new() -> Self {
        // A thread that ends has none any more.
        let spare = T::spare().try_with(Cell::take).ok().flatten();
        Self(ManuallyDrop::new(spare.unwrap_or_default()))
    }
}

impl<T: Recycle> Default for Recycled<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Recycle> Deref for Recycled<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Recycle> DerefMut for Recycled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Recycle + fmt::Debug> fmt::Debug for Recycled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Recycle> Drop for Recycled<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody sees `self.0` after this, which is the drop of what it lies in.
        let mut memory = unsafe { ManuallyDrop::take(&mut self.0) };
        if memory.recycle() {
            // A thread that ends keeps none.
            let _ = T::spare().try_with(|spare| spare.set(Some(memory)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static SPARE: Cell<Option<Box<List>>> = const { Cell::new(None) };
    }

    #[derive(Default)]
    struct List {
        bytes: Vec<u8>,
    }

    impl Recycle for List {
        fn spare() -> &'static LocalKey<Cell<Option<Box<Self>>>> {
            &SPARE
        }

        fn recycle(&mut self) -> bool {
            self.bytes.clear();
            self.bytes.capacity() <= 64
        }
    }

    #[test]
    fn the_next_begins_empty_in_the_memory_of_the_last() {
        let mut first = Recycled::<List>::new();
        first.bytes.extend([1, 2, 3]);
        let at = first.bytes.as_ptr();
        drop(first);
        let second = Recycled::<List>::new();
        assert_eq!((second.bytes.as_ptr(), second.bytes.len()), (at, 0));
        let third = Recycled::<List>::new();
        assert_eq!(third.bytes.capacity(), 0, "what somebody uses is not given twice");
    }

    #[test]
    fn what_became_too_large_is_not_kept() {
        Recycled::<List>::new().bytes.resize(1000, 0);
        assert_eq!(Recycled::<List>::new().bytes.capacity(), 0);
    }
}
