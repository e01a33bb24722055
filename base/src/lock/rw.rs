//! Reader-writer locks with the same ranks as [`Mutex`](super::Mutex).
//!
//! [`RwLock::peek`] takes no lock if the value was read often since it was last written ([`ReadCount`]): it reads the
//! value in a read section, and the next writer waits for a grace period. So CPUs that read the same value write to no
//! memory that the others use. A grace period makes all CPUs execute a fence, which takes microseconds: a value that is
//! written often is always read under the lock.
//!
//! # Invariants
//! - A thread that holds the lock for writing is the only one that uses the value, also if others read it without the
//!   lock before.
//! - A thread must not take a lock for reading again that it already holds for reading: with a writer waiting in
//!   between, it would deadlock. If a thread may hold several locks of a rank, the callers define an order.
//! - A thread in a read section must not wait for a lock: a writer may hold it, and wait for the section.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::RawRwLock;
use parking_lot::lock_api::{RwLockReadGuard, RwLockWriteGuard};

use super::read_count::ReadCount;
use super::{Rank, TrackedRank};
use crate::rcu;
use crate::simulation::hooks::{self, ReleaseHook};

/// A reader-writer lock with a rank. A panic does not poison it.
pub struct RwLock<T> {
    inner: parking_lot::RwLock<T>,
    /// Calls of [`peek`](Self::peek) since the value was last written.
    reads: ReadCount<OFTEN>,
    tracked: TrackedRank,
}

/// Number of reads after which a value is read without the lock.
const OFTEN: u32 = 256;

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            inner: parking_lot::RwLock::new(value),
            reads: ReadCount::new(),
            tracked: TrackedRank::new(rank),
        }
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
        self.reads.end_sections();
        self.tracked.acquired(&self.inner);
        WriteGuard { inner, tracked: self.tracked, _released: ReleaseHook::new(&self.inner) }
    }

    /// Takes the lock for writing if it is free. Does not wait for its holders, but for threads that read the value
    /// without it, so it must not be called in a read section.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        self.reads.end_sections();
        self.tracked.acquired(&self.inner);
        Some(WriteGuard { inner, tracked: self.tracked, _released: ReleaseHook::new(&self.inner) })
    }

    /// The value, without locking: the caller has exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Calls `read` with the value. Waits until no thread has it locked for writing. `read` must not wait, nor take
    /// long. Must not be called in a read section.
    #[inline]
    #[track_caller]
    pub fn peek<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        debug_assert!(!rcu::is_in_section(), "a writer may wait for the section that waits for the writer");
        self.reads.read_without_lock(self.reader(read)).unwrap_or_else(|read| {
            let _locked = self.read();
            self.reads.add();
            read()
        })
    }

    /// Like [`peek`](Self::peek), also in a read section; returns `None` if a thread has the value locked for writing,
    /// or waits for that.
    #[inline]
    pub fn try_peek<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.reads.read_without_lock(self.reader(read)).map_or_else(
            |read| {
                let _locked = self.try_read()?;
                self.reads.add();
                Some(read())
            },
            Some,
        )
    }

    /// Gives the value to `read`. To be called by a thread that holds the lock for reading, or that [`ReadCount`] lets
    /// read without it.
    #[inline]
    fn reader<R>(&self, read: impl FnOnce(&T) -> R) -> impl FnOnce() -> R {
        // SAFETY: no thread changes the value meanwhile. A writer needs the lock, and then waits for those that read
        // without it; what it did happened before the count of reads was high enough again.
        move || read(unsafe { &*self.inner.data_ptr() })
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
    use std::sync::atomic::{AtomicBool, Ordering};

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

    #[test]
    fn readers_that_take_no_lock_never_see_a_value_that_is_being_written() {
        const WRITES: u32 = 200;
        let (pair, stop) = (RwLock::new(Rank::Folio, (0, 0)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        assert!(pair.peek(|(first, second)| first == second));
                        assert!(pair.try_peek(|(first, second)| first == second).unwrap_or(true));
                    }
                });
            }
            for n in 0..WRITES {
                while n % 4 == 0 && pair.reads.read_without_lock(|| ()).is_err() {
                    std::thread::yield_now();
                }
                let mut pair = pair.write();
                assert_eq!(*pair, (n, n));
                pair.0 += 1;
                std::thread::yield_now();
                pair.1 += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(pair.peek(|pair| *pair), (WRITES, WRITES));
    }

    #[test]
    fn a_value_that_is_locked_for_writing_is_not_read() {
        let value = RwLock::new(Rank::Folio, 1);
        for _ in 0..2 * OFTEN {
            assert_eq!(value.try_peek(|value| *value), Some(1));
        }
        let mut locked = value.write();
        *locked = 2;
        assert_eq!(value.try_peek(|value| *value), None);
        drop(locked);
        assert_eq!(value.try_peek(|value| *value), Some(2));
    }
}
