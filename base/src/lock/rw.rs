//! Locks that many readers hold together, under the same ranks as [`Mutex`](super::Mutex).
//!
//! # Invariants
//! A thread does not wait for a lock for reading that it holds already: a writer that waits in between would make that
//! wait end never. Where a rank admits several locks at once, its users keep an order.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::RawRwLock;
use parking_lot::lock_api::{RwLockReadGuard, RwLockWriteGuard};

use super::{Kept, Rank};
use crate::simulation::seam::{self, Released};

/// A reader-writer lock with a rank. It is not poisoned by a panic.
pub struct RwLock<T> {
    inner: parking_lot::RwLock<T>,
    kept: Kept,
}

impl<T> RwLock<T> {
    /// A lock that is free.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { inner: parking_lot::RwLock::new(value), kept: Kept::new(rank) }
    }

    /// Waits until nobody writes.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.kept.check();
        let inner = match seam::is_simulated() {
            true => seam::acquire(&self.inner, || self.inner.try_read()),
            false => self.inner.read(),
        };
        self.kept.acquired(&self.inner);
        ReadGuard { inner, kept: self.kept, _released: Released::new(&self.inner) }
    }

    /// Takes the lock for reading if nobody writes or waits to.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        self.kept.acquired(&self.inner);
        Some(ReadGuard { inner, kept: self.kept, _released: Released::new(&self.inner) })
    }

    /// Waits until nobody else holds the lock.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.kept.check();
        let inner = match seam::is_simulated() {
            true => seam::acquire(&self.inner, || self.inner.try_write()),
            false => self.inner.write(),
        };
        self.kept.acquired(&self.inner);
        WriteGuard { inner, kept: self.kept, _released: Released::new(&self.inner) }
    }

    /// Takes the lock for writing if nobody holds it.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        self.kept.acquired(&self.inner);
        Some(WriteGuard { inner, kept: self.kept, _released: Released::new(&self.inner) })
    }

    /// The value, without locking: the caller is alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}

/// The proof that a thread holds a [`RwLock`] for reading.
pub struct ReadGuard<'a, T> {
    inner: RwLockReadGuard<'a, RawRwLock, T>,
    kept: Kept,
    /// Behind `inner`: the lock is free when it is dropped.
    _released: Released,
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
        self.kept.released();
    }
}

/// The proof that a thread holds a [`RwLock`] for writing.
pub struct WriteGuard<'a, T> {
    inner: RwLockWriteGuard<'a, RawRwLock, T>,
    kept: Kept,
    /// Behind `inner`: the lock is free when it is dropped.
    _released: Released,
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
        self.kept.released();
    }
}

/// Where a lock lies that a guard holds, and what keeps it alive.
struct Within<O, T> {
    lock: NonNull<RwLock<T>>,
    owner: Arc<O>,
    /// A lock is released by the thread that took it.
    not_send: PhantomData<*mut T>,
}

impl<O, T> Within<O, T> {
    fn lock(&self) -> &RwLock<T> {
        // SAFETY: `lock` was borrowed from `*self.owner`. That the `Arc` is held means that nobody can have a unique
        // borrow of its value, and so the shared borrow may last as long.
        unsafe { self.lock.as_ref() }
    }
}

/// The proof that a thread holds for reading a [`RwLock`] that lies within an `O`, which it keeps alive.
pub struct OwnedRead<O, T>(Within<O, T>);

impl<O, T> OwnedRead<O, T> {
    /// Waits for the lock that `project` finds in `owner`.
    #[inline]
    #[track_caller]
    pub fn lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Self {
        let lock = project(&owner);
        std::mem::forget(lock.read());
        Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData })
    }

    /// Takes the lock that `project` finds in `owner`, if nobody writes or waits to.
    #[inline]
    pub fn try_lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Option<Self> {
        let lock = project(&owner);
        std::mem::forget(lock.try_read()?);
        Some(Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData }))
    }

    /// What the lock lies within.
    pub fn owner(&self) -> &Arc<O> {
        &self.0.owner
    }
}

impl<O, T> Deref for OwnedRead<O, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock for reading: it was taken in the constructor and forgotten there, and only
        // `drop` releases it.
        unsafe { &*self.0.lock().inner.data_ptr() }
    }
}

impl<O, T> Drop for OwnedRead<O, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock().kept.released();
        // SAFETY: this guard holds the lock for reading, and it is dropped by the thread that took it as it is not
        // `Send`.
        unsafe { self.0.lock().inner.force_unlock_read() };
        seam::released(&self.0.lock().inner);
    }
}

/// The proof that a thread holds for writing a [`RwLock`] that lies within an `O`, which it keeps alive.
pub struct OwnedWrite<O, T>(Within<O, T>);

impl<O, T> OwnedWrite<O, T> {
    /// Waits for the lock that `project` finds in `owner`.
    #[inline]
    #[track_caller]
    pub fn lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Self {
        let lock = project(&owner);
        std::mem::forget(lock.write());
        Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData })
    }

    /// Takes the lock that `project` finds in `owner`, if nobody holds it.
    #[inline]
    pub fn try_lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a RwLock<T>) -> Option<Self> {
        let lock = project(&owner);
        std::mem::forget(lock.try_write()?);
        Some(Self(Within { lock: NonNull::from(lock), owner, not_send: PhantomData }))
    }

    /// What the lock lies within.
    pub fn owner(&self) -> &Arc<O> {
        &self.0.owner
    }
}

impl<O, T> Deref for OwnedWrite<O, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock for writing: it was taken in the constructor and forgotten there, and only
        // `drop` releases it.
        unsafe { &*self.0.lock().inner.data_ptr() }
    }
}

impl<O, T> DerefMut for OwnedWrite<O, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the borrow of `self` is unique, so no other reference came from this guard.
        unsafe { &mut *self.0.lock().inner.data_ptr() }
    }
}

impl<O, T> Drop for OwnedWrite<O, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock().kept.released();
        // SAFETY: this guard holds the lock for writing, and it is dropped by the thread that took it as it is not
        // `Send`.
        unsafe { self.0.lock().inner.force_unlock_write() };
        seam::released(&self.0.lock().inner);
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
    fn readers_share_and_a_writer_is_alone() {
        let holder = holder(Rank::Folio);
        let first = OwnedRead::lock(Arc::clone(&holder), |holder| &holder.value);
        let second = OwnedRead::try_lock(Arc::clone(&holder), |holder| &holder.value);
        assert_eq!(second.as_deref(), Some(&1));
        assert!(OwnedWrite::try_lock(Arc::clone(&holder), |holder| &holder.value).is_none());
        drop((first, second));
        let mut alone = OwnedWrite::lock(Arc::clone(&holder), |holder| &holder.value);
        *alone += 1;
        assert!(holder.value.try_read().is_none());
        let holder = Arc::clone(alone.owner());
        drop(alone);
        assert_eq!(*holder.value.read(), 2);
        *holder.value.write() += 1;
        assert_eq!(holder.value.try_write().map(|value| *value), Some(3));
    }

    #[test]
    fn many_threads_lose_no_count_and_see_whole_values() {
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
