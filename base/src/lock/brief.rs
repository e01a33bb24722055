//! Locks that are held for a few instructions, and hardly ever by somebody else: under the same ranks as
//! [`Mutex`](super::Mutex), at half its price.
//!
//! Giving a [`Mutex`](super::Mutex) back is an atomic exchange, which looks for threads that sleep. Nobody sleeps here:
//! whoever meets another thread tries again, and soon lets others run in between. A store is then enough to give the
//! lock back, and an atomic exchange is what a commit pays most for.
//!
//! # Invariants
//! The value is reached only through a guard, and there is one guard at a time.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::taken::Taken;
use super::{Kept, Rank};
use crate::simulation::seam;

/// A lock that is held for a few instructions. It is not poisoned by a panic.
pub struct Brief<T> {
    taken: Taken,
    kept: Kept,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, as there is one guard at a time; it goes from one to another,
// for which it must be `Send`.
unsafe impl<T: Send> Sync for Brief<T> {}

impl<T> Brief<T> {
    /// A lock that is free.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { taken: Taken::new(), kept: Kept::new(rank), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> BriefGuard<'_, T> {
        self.kept.check();
        seam::preempt();
        self.taken.take();
        self.kept.acquired(self);
        BriefGuard { lock: self, not_send: PhantomData }
    }

    /// The value, without locking: the caller is alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> fmt::Debug for Brief<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Brief")
    }
}

/// The proof that a thread holds a [`Brief`].
pub struct BriefGuard<'a, T> {
    lock: &'a Brief<T>,
    /// A lock is released by the thread that took it.
    not_send: PhantomData<*mut T>,
}

// SAFETY: a shared guard gives only `&T`.
unsafe impl<T: Sync> Sync for BriefGuard<'_, T> {}

impl<T> Deref for BriefGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, as it is made by who has `taken`, and gives it back when dropped.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BriefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the borrow of `self` is unique, so no other reference came from this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BriefGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.kept.released();
        self.lock.taken.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_lose_no_count_and_see_whole_values() {
        let lock = Brief::new(Rank::Leaf, (0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..20_000 {
                        let mut both = lock.lock();
                        assert_eq!(both.0 * 2, both.1);
                        both.0 += 1;
                        if n % 5_000 == 0 {
                            // Who waits must let this thread run.
                            std::thread::yield_now();
                        }
                        both.1 += 2;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (80_000, 160_000));
    }

    #[test]
    fn a_panic_gives_it_back() {
        let mut lock = Brief::new(Rank::Leaf, 1);
        let panics = std::panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        *lock.lock() += 1;
        assert_eq!(*lock.get_mut(), 2);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_step_back_panics() {
        let (first, second) = (Brief::new(Rank::Cache, ()), Brief::new(Rank::Leaf, ()));
        let _second = second.lock();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(first.lock()))).is_err());
    }
}
