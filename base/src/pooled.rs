//! Per-thread reuse of allocated memory: dropping a value keeps its memory for the next value of the thread.
//!
//! A large short-lived value is moved by its address only, and needs no allocation.
//!
//! # Invariants
//! A thread keeps at most one spare per type. If the spare is in use, new memory is allocated.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

/// A type whose memory can be reused.
pub trait Poolable: Default + 'static {
    /// The spare of the thread.
    fn spare() -> &'static LocalKey<Cell<Option<Box<Self>>>>;

    /// Resets the value to its default, except for memory that it keeps. Returns whether to keep it.
    fn recycle(&mut self) -> bool;
}

/// A `T` in reused memory.
pub struct Pooled<T: Poolable>(ManuallyDrop<Box<T>>);

impl<T: Poolable> Pooled<T> {
    /// A default value.
    #[inline]
    pub fn new() -> Self {
        // No spare while the thread ends.
        let spare = T::spare().try_with(Cell::take).ok().flatten();
        Self(ManuallyDrop::new(spare.unwrap_or_default()))
    }
}

impl<T: Poolable> Default for Pooled<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Poolable> Deref for Pooled<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Poolable> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Poolable + fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Poolable> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self.0` is not used after this: it is the drop of its owner.
        let mut memory = unsafe { ManuallyDrop::take(&mut self.0) };
        if memory.recycle() {
            // No spare is kept while the thread ends.
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

    impl Poolable for List {
        fn spare() -> &'static LocalKey<Cell<Option<Box<Self>>>> {
            &SPARE
        }

        fn recycle(&mut self) -> bool {
            self.bytes.clear();
            self.bytes.capacity() <= 64
        }
    }

    #[test]
    fn the_next_value_reuses_the_memory() {
        let mut first = Pooled::<List>::new();
        first.bytes.extend([1, 2, 3]);
        let at = first.bytes.as_ptr();
        drop(first);
        let second = Pooled::<List>::new();
        assert_eq!((second.bytes.as_ptr(), second.bytes.len()), (at, 0));
        let third = Pooled::<List>::new();
        assert_eq!(third.bytes.capacity(), 0, "memory in use is not reused");
    }

    #[test]
    fn oversized_memory_is_not_kept() {
        Pooled::<List>::new().bytes.resize(1000, 0);
        assert_eq!(Pooled::<List>::new().bytes.capacity(), 0);
    }
}
