//! Mutexes with ranks, and guards that keep the owner of a mutex alive.
//!
//! [`Mutex::peek`] takes no lock if the value was read often since it was last changed, like
//! [`RwLock::peek`](super::RwLock::peek): only for mutexes with [`UntilLocked`](super::UntilLocked) or
//! [`UntilChanged`](super::UntilChanged).

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(debug_assertions)]
use crossbeam_utils::atomic::AtomicCell;
use parking_lot::RawMutex;
use parking_lot::lock_api;

#[cfg(debug_assertions)]
use super::held;
use super::peeked::{Peeks, RawPeekMutex};
use super::{Rank, TrackedRank, unlocked_reads};
use crate::rcu::{self, Section};
use crate::simulation::hooks::{self, ReleaseHook};

/// The rank of a mutex, which the holder of the lock may change.
struct MutexRank {
    #[cfg(debug_assertions)]
    rank: AtomicCell<Rank>,
}

impl MutexRank {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "release builds keep no ranks"))]
    const fn new(rank: Rank) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank: AtomicCell::new(rank),
        }
    }

    #[inline]
    fn tracked(&self) -> TrackedRank {
        TrackedRank {
            #[cfg(debug_assertions)]
            rank: self.rank.load(),
        }
    }

    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "release builds keep no ranks"))]
    #[inline]
    fn change(&self, rank: Rank) {
        #[cfg(debug_assertions)]
        {
            held::pop(self.rank.swap(rank));
            held::push(rank);
        }
    }
}

/// A mutex with a rank. A panic does not poison it: the protected data must be consistent between statements, or be
/// abandoned with the volume.
pub struct Mutex<T, R = RawMutex> {
    pub(super) inner: lock_api::Mutex<R, T>,
    rank: MutexRank,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { inner: lock_api::Mutex::new(value), rank: MutexRank::new(rank) }
    }
}

impl<T, R: Peeks> Mutex<T, R> {
    /// Waits for the lock.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T, R> {
        self.rank.tracked().check();
        self.lock_out_of_order()
    }

    /// Waits for the lock without checking the order: a thread that holds it never waits for locks of this thread.
    fn lock_out_of_order(&self) -> MutexGuard<'_, T, R> {
        self.to_change(self.wait())
    }

    fn wait(&self) -> lock_api::MutexGuard<'_, R, T> {
        match hooks::is_simulated() {
            true => hooks::acquire(&self.inner, || self.inner.try_lock()),
            false => self.inner.lock(),
        }
    }

    /// Takes the lock if it is free. Does not wait for its holder, but may wait for threads that read the value without
    /// it, so it must not be called in a read section.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, R>> {
        Some(self.to_change(self.inner.try_lock()?))
    }

    /// Takes the lock if it is free, for a caller that otherwise waits for it: checks the order in both cases.
    #[inline]
    #[track_caller]
    pub fn try_lock_in_order(&self) -> Option<MutexGuard<'_, T, R>> {
        let inner = self.inner.try_lock()?;
        self.rank.tracked().check();
        Some(self.to_change(inner))
    }

    /// Waits for the lock, to read the value: other threads may read it without the lock meanwhile.
    #[inline]
    #[track_caller]
    pub fn lock_to_read(&self) -> MutexReadGuard<'_, T, R> {
        self.rank.tracked().check();
        MutexReadGuard(self.guard(self.wait()))
    }

    /// Takes the lock to read the value if it is free. Does not wait for threads that read without the lock.
    #[inline]
    pub fn try_lock_to_read(&self) -> Option<MutexReadGuard<'_, T, R>> {
        Some(MutexReadGuard(self.guard(self.inner.try_lock()?)))
    }

    #[inline]
    fn to_change<'a>(&'a self, inner: lock_api::MutexGuard<'a, R, T>) -> MutexGuard<'a, T, R> {
        self.raw().locked();
        self.guard(inner)
    }

    #[inline]
    fn guard<'a>(&'a self, inner: lock_api::MutexGuard<'a, R, T>) -> MutexGuard<'a, T, R> {
        let tracked = self.rank.tracked();
        tracked.acquired(&self.inner);
        MutexGuard { inner, tracked, _released: ReleaseHook::new(&self.inner) }
    }

    #[inline]
    fn raw(&self) -> &R {
        // SAFETY: it is locked and unlocked by guards only.
        unsafe { self.inner.raw() }
    }
}

impl<T: Sync, const UNTIL_LOCKED: bool> Mutex<T, RawPeekMutex<UNTIL_LOCKED>> {
    /// An unlocked mutex of a value that may be read without the lock.
    pub const fn new_peeked(rank: Rank, value: T) -> Self {
        Self { inner: lock_api::Mutex::new(value), rank: MutexRank::new(rank) }
    }

    /// Calls `read` with the value. Waits until no thread has it locked. `read` must not wait, nor take long. Must not
    /// be called in a read section.
    #[inline]
    #[track_caller]
    pub fn peek<V>(&self, read: impl FnOnce(&T) -> V) -> V {
        debug_assert!(!rcu::is_in_section(), "a writer may wait for the section that waits for the writer");
        // SAFETY: no thread changes the value meanwhile. One that locks it for that waits for those that read without
        // the lock; what it did happened before the count of reads was high enough again.
        let read = || read(unsafe { &*self.inner.data_ptr() });
        match self.raw().reads().read_without_lock(read) {
            Ok(value) => {
                unlocked_reads::count();
                value
            }
            Err(read) => {
                let _locked = self.lock_to_read();
                self.raw().reads().add();
                read()
            }
        }
    }

    /// The value, to be read in a section: without the lock, or with the lock if that is free and the value is not read
    /// often. `None` if a thread has it locked. Does not wait.
    #[inline]
    pub fn peek_in<'s>(&'s self, section: &'s Section) -> Option<Peeked<'s, T, RawPeekMutex<UNTIL_LOCKED>>> {
        let reads = self.raw().reads();
        if reads.is_read_without_lock(section) {
            unlocked_reads::count();
            // SAFETY: as in `peek`. A thread that wants to change the value waits for the section.
            return Some(Peeked::Unlocked(unsafe { &*self.inner.data_ptr() }));
        }
        let locked = self.try_lock_to_read()?;
        reads.add();
        Some(Peeked::Locked(locked))
    }
}

/// A value that is read in a section.
pub enum Peeked<'s, T, R: Peeks> {
    /// Without the lock: nobody changes it before the section ends.
    Unlocked(&'s T),
    /// With the lock.
    Locked(MutexReadGuard<'s, T, R>),
}

impl<T, R: Peeks> Deref for Peeked<'_, T, R> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Unlocked(value) => value,
            Self::Locked(value) => value,
        }
    }
}

impl<T, R> fmt::Debug for Mutex<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The guard of a [`Mutex`].
pub struct MutexGuard<'a, T, R: Peeks = RawMutex> {
    pub(super) inner: lock_api::MutexGuard<'a, R, T>,
    tracked: TrackedRank,
    /// After `inner`: dropped when the lock is free.
    _released: ReleaseHook,
}

impl<T, R: Peeks> Deref for MutexGuard<'_, T, R> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, R: Peeks> DerefMut for MutexGuard<'_, T, R> {
    /// May wait for threads that read the value without the lock, so it must not be called in a read section.
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: it stays locked.
        unsafe { lock_api::MutexGuard::mutex(&self.inner).raw() }.changing();
        &mut self.inner
    }
}

impl<T, R: Peeks> Drop for MutexGuard<'_, T, R> {
    #[inline]
    fn drop(&mut self) {
        self.tracked.released();
    }
}

/// The guard of a [`Mutex`] that is held to read the value.
pub struct MutexReadGuard<'a, T, R: Peeks>(MutexGuard<'a, T, R>);

impl<T, R: Peeks> Deref for MutexReadGuard<'_, T, R> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A guard of a [`Mutex`] inside an `O` that keeps the `O` alive: for locks held longer than a borrow can last, such as
/// those of a transaction.
pub struct OwnedMutexGuard<O, T, R = RawMutex>
where
    R: Peeks,
{
    mutex: NonNull<Mutex<T, R>>,
    owner: Arc<O>,
    /// Not `Send`: the thread that took a lock releases it.
    not_send: PhantomData<*mut T>,
}

impl<O, T, R: Peeks> OwnedMutexGuard<O, T, R> {
    /// Waits for the mutex that `project` selects in `owner`.
    #[inline]
    #[track_caller]
    pub fn lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T, R>) -> Self {
        let mutex = project(&owner);
        std::mem::forget(mutex.lock());
        Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData }
    }

    /// Waits for the mutex that `project` selects in `owner`, even if the thread holds locks of higher ranks: a thread
    /// that holds this one never waits for those.
    #[inline]
    pub fn lock_out_of_order(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T, R>) -> Self {
        let mutex = project(&owner);
        std::mem::forget(mutex.lock_out_of_order());
        Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData }
    }

    /// Takes the mutex that `project` selects in `owner` if it is free.
    #[inline]
    pub fn try_lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T, R>) -> Option<Self> {
        Self::try_into_lock(owner, project).ok()
    }

    /// Like [`Self::try_lock`], but returns `owner` on failure.
    ///
    /// # Errors
    /// The owner, if the mutex is held.
    #[inline]
    pub fn try_into_lock(
        owner: Arc<O>,
        project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T, R>,
    ) -> Result<Self, Arc<O>> {
        let mutex = project(&owner);
        let Some(guard) = mutex.try_lock() else { return Err(owner) };
        std::mem::forget(guard);
        Ok(Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData })
    }

    /// Like [`Self::try_lock`], for a caller that otherwise waits for the mutex: checks the order in both cases.
    ///
    /// # Errors
    /// The owner, if the mutex is held.
    #[inline]
    #[track_caller]
    pub fn try_lock_in_order(
        owner: Arc<O>,
        project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T, R>,
    ) -> Result<Self, Arc<O>> {
        let mutex = project(&owner);
        let Some(guard) = mutex.try_lock_in_order() else { return Err(owner) };
        std::mem::forget(guard);
        Ok(Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData })
    }

    /// The owner of the mutex.
    pub fn owner(&self) -> &Arc<O> {
        &self.owner
    }

    /// Changes the rank of the mutex, if the protected object changes its role.
    pub fn change_rank(&mut self, rank: Rank) {
        self.mutex().rank.change(rank);
    }

    fn mutex(&self) -> &Mutex<T, R> {
        // SAFETY: `mutex` was borrowed from `*self.owner`. While the `Arc` is held nobody can have a unique borrow of
        // its value, so the shared borrow may last as long.
        unsafe { self.mutex.as_ref() }
    }
}

impl<O, T, R: Peeks> Deref for OwnedMutexGuard<O, T, R> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock: the constructor took it and forgot the inner guard, and only `drop`
        // releases it.
        unsafe { &*self.mutex().inner.data_ptr() }
    }
}

impl<O, T, R: Peeks> DerefMut for OwnedMutexGuard<O, T, R> {
    /// May wait for threads that read the value without the lock, like that of [`MutexGuard`].
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.mutex().raw().changing();
        // SAFETY: as in `deref`; the borrow of `self` is unique, so no other reference came from this guard.
        unsafe { &mut *self.mutex().inner.data_ptr() }
    }
}

impl<O, T, R: Peeks> Drop for OwnedMutexGuard<O, T, R> {
    #[inline]
    fn drop(&mut self) {
        self.mutex().rank.tracked().released();
        // SAFETY: this guard holds the lock and, as it is not `Send`, is dropped by the thread that took it.
        unsafe { self.mutex().inner.force_unlock() };
        hooks::on_release(&self.mutex().inner);
    }
}
