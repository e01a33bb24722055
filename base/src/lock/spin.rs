//! Spinlocks for critical sections of a few instructions with rare contention, with the same ranks as
//! [`Mutex`](super::Mutex) and at half its cost.
//!
//! Releasing a [`Mutex`](super::Mutex) needs an atomic exchange to detect sleeping waiters. A spinlock has none: a
//! waiter spins and then yields. Release is a plain store, and atomic exchanges are the largest cost of a commit.
//!
//! # Invariants
//! The value is accessed only through a guard, and at most one guard exists.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::raw_spin::RawSpinLock;
use super::{Rank, TrackedRank};
use crate::simulation::hooks;

/// A spinlock with a rank. A panic does not poison it.
pub struct SpinLock<T> {
    lock: RawSpinLock,
    tracked: TrackedRank,
    value: UnsafeCell<T>,
}

// SAFETY: at most one guard exists, so one thread at a time accesses the value; it moves between threads, for which it
// must be `Send`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An unlocked spinlock.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { lock: RawSpinLock::new(), tracked: TrackedRank::new(rank), value: UnsafeCell::new(value) }
    }

    /// Spins until the lock is free.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        self.tracked.check();
        hooks::preempt();
        self.lock.lock();
        self.tracked.acquired(self);
        SpinLockGuard { lock: self, not_send: PhantomData }
    }

    /// The value, without locking: the caller has exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpinLock")
    }
}

/// The guard of a [`SpinLock`].
pub struct SpinLockGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// Not `Send`: the thread that took a lock releases it.
    not_send: PhantomData<*mut T>,
}

// SAFETY: a shared guard gives only `&T`.
unsafe impl<T: Sync> Sync for SpinLockGuard<'_, T> {}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one: it exists while `lock` is locked, and unlocks it when dropped.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the borrow of `self` is unique, so no other reference came from this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.tracked.released();
        self.lock.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_updates_are_not_lost_and_values_are_consistent() {
        let lock = SpinLock::new(Rank::Leaf, (0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..20_000 {
                        let mut both = lock.lock();
                        assert_eq!(both.0 * 2, both.1);
                        both.0 += 1;
                        if n % 5_000 == 0 {
                            // A waiter must let this thread run.
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
    fn a_panic_releases_the_lock() {
        let mut lock = SpinLock::new(Rank::Leaf, 1);
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
        let (first, second) = (SpinLock::new(Rank::Cache, ()), SpinLock::new(Rank::Leaf, ()));
        let _second = second.lock();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(first.lock()))).is_err());
    }
}
