//! Reader-writer locks with the same ranks as [`Mutex`](super::Mutex).
//!
//! # Invariants
//! A thread must not take a lock for reading again that it already holds for reading: with a writer waiting in between,
//! it would deadlock. If a thread may hold several locks of a rank, the callers define an order.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::RawRwLock;
use parking_lot::lock_api::{RwLockReadGuard, RwLockWriteGuard};

use super::{Rank, TrackedRank};
use crate::simulation::hooks::{self, ReleaseHook};

/// A reader-writer lock with a rank. A panic does not poison it.
pub struct RwLock<T> {
    inner: parking_lot::RwLock<T>,
    tracked: TrackedRank,
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { inner: parking_lot::RwLock::new(value), tracked: TrackedRank::new(rank) }
    }

    /// Waits until there is no writer.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.tracked.check();
        let inner = match hooks::is_simulated() {
            true => hooks::acquire(&self.inner, || self.inner.try_read()),
            false => self.inner.read(),
        };
        self.tracked.acquired(&self.inner);
        ReadGuard { inner, tracked: self.tracked, _released: ReleaseHook::new(&self.inner) }
    }

    /// Takes the lock for reading if there is no writer and no waiting writer.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        self.tracked.acquired(&self.inner);
        Some(ReadGuard { inner, tracked: self.tracked, _released: ReleaseHook::new(&self.inner) })
    }

    /// Waits until the lock is free.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.tracked.check();
        let inner = match hooks::is_simulated() {
            true => hooks::acquire(&self.inner, || self.inner.try_write()),
            false => self.inner.write(),
        };
        self.tracked.acquired(&self.inner);
        WriteGuard { inner, tracked: self.tracked, _released: ReleaseHook::new(&self.inner) }
    }

    /// Takes the lock for writing if it is free.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        self.tracked.acquired(&self.inner);
        Some(WriteGuard { inner, tracked: self.tracked, _released: ReleaseHook::new(&self.inner) })
    }

    /// The value, without locking: the caller has exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}

/// The guard of a [`RwLock`] held for reading.
pub struct ReadGuard<'a, T> {
    inner: RwLockReadGuard<'a, RawRwLock, T>,
    tracked: TrackedRank,
    /// After `inner`: dropped when the lock is free.
    _released: ReleaseHook,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.tracked.released();
    }
}

/// The guard of a [`RwLock`] held for writing.
pub struct WriteGuard<'a, T> {
    inner: RwLockWriteGuard<'a, RawRwLock, T>,
    tracked: TrackedRank,
    /// After `inner`: dropped when the lock is free.
    _released: ReleaseHook,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.tracked.released();
    }
}

/// A lock inside its owner, which it keeps alive.
struct Within<O, T> {
    lock: NonNull<RwLock<T>>,
    owner: Arc<O>,
    /// Not `Send`: the thread that took a lock releases it.
    not_send: PhantomData<*mut T>,
}

impl<O, T> Within<O, T> {
    fn lock(&self) -> &RwLock<T> {
        // SAFETY: `lock` was borrowed from `*self.owner`. While the `Arc` is held nobody can have a unique borrow of
        // its value, so the shared borrow may last as long.
        unsafe { self.lock.as_ref() }
    }
}

/// The guard of a [`RwLock`] inside an `O`, held for reading, that keeps the `O` alive.
pub struct OwnedReadGuard<O, T>(Within<O, T>);

impl<O, T> OwnedReadGuard<O, T> {
    /// Waits for the lock that `project` selects in `owner`.
    #[inline]
    #[track_caller]
    pub fn lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Self {
        let lock = project(&owner);
        std::mem::forget(lock.read());
        Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData })
    }

    /// Takes the lock that `project` selects in `owner` if there is no writer and no waiting writer.
    #[inline]
    pub fn try_lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Option<Self> {
        let lock = project(&owner);
        std::mem::forget(lock.try_read()?);
        Some(Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData }))
    }
}

impl<O, T> Deref for OwnedReadGuard<O, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock for reading: the constructor took it and forgot the inner guard, and only
        // `drop` releases it.
        unsafe { &*self.0.lock().inner.data_ptr() }
    }
}

impl<O, T> Drop for OwnedReadGuard<O, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock().tracked.released();
        // SAFETY: this guard holds the lock for reading and, as it is not `Send`, is dropped by the thread that took
        // it.
        unsafe { self.0.lock().inner.force_unlock_read() };
        hooks::on_release(&self.0.lock().inner);
    }
}

/// The guard of a [`RwLock`] inside an `O`, held for writing, that keeps the `O` alive.
pub struct OwnedWriteGuard<O, T>(Within<O, T>);

impl<O, T> OwnedWriteGuard<O, T> {
    /// Waits for the lock that `project` selects in `owner`.
    #[inline]
    #[track_caller]
    pub fn lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Self {
        let lock = project(&owner);
        std::mem::forget(lock.write());
        Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData })
    }

    /// Takes the lock that `project` selects in `owner` if it is free.
    #[inline]
    pub fn try_lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Option<Self> {
        let lock = project(&owner);
        std::mem::forget(lock.try_write()?);
        Some(Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData }))
    }

    /// The owner of the lock.
    pub fn owner(&self) -> &Arc<O> {
        &self.0.owner
    }
}

impl<O, T> Deref for OwnedWriteGuard<O, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock for writing: the constructor took it and forgot the inner guard, and only
        // `drop` releases it.
        unsafe { &*self.0.lock().inner.data_ptr() }
    }
}

impl<O, T> DerefMut for OwnedWriteGuard<O, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the borrow of `self` is unique, so no other reference came from this guard.
        unsafe { &mut *self.0.lock().inner.data_ptr() }
    }
}

impl<O, T> Drop for OwnedWriteGuard<O, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock().tracked.released();
        // SAFETY: this guard holds the lock for writing and, as it is not `Send`, is dropped by the thread that took
        // it.
        unsafe { self.0.lock().inner.force_unlock_write() };
        hooks::on_release(&self.0.lock().inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Holder {
        value: RwLock<u32>,
    }

    fn holder(rank: Rank) -> Arc<Holder> {
        Arc::new(Holder { value: RwLock::new(rank, 1) })
    }

    #[test]
    fn readers_share_and_a_writer_excludes() {
        let holder = holder(Rank::Folio);
        let first = OwnedReadGuard::lock(Arc::clone(&holder), |holder| &holder.value);
        let second = OwnedReadGuard::try_lock(Arc::clone(&holder), |holder| &holder.value);
        assert_eq!(second.as_deref(), Some(&1));
        assert!(OwnedWriteGuard::try_lock(Arc::clone(&holder), |holder| &holder.value).is_none());
        drop((first, second));
        let mut alone = OwnedWriteGuard::lock(Arc::clone(&holder), |holder| &holder.value);
        *alone += 1;
        assert!(holder.value.try_read().is_none());
        let holder = Arc::clone(alone.owner());
        drop(alone);
        assert_eq!(*holder.value.read(), 2);
        *holder.value.write() += 1;
        assert_eq!(holder.value.try_write().map(|value| *value), Some(3));
    }

    #[test]
    fn concurrent_updates_are_not_lost_and_values_are_consistent() {
        let lock = RwLock::new(Rank::Folio, (0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let mut both = lock.write();
                        both.0 += 1;
                        both.1 += 2;
                        drop(both);
                        let both = lock.read();
                        assert_eq!(both.0 * 2, both.1);
                    }
                });
            }
        });
        assert_eq!(*lock.read(), (20_000, 40_000));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_step_back_panics_and_a_try_does_not() {
        let (first, second) = (RwLock::new(Rank::Layout, ()), RwLock::new(Rank::Folio, ()));
        let _second = second.read();
        assert!(first.try_read().is_some() && first.try_write().is_some());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(first.read()))).is_err());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(first.write()))).is_err());
    }
}
