//! Locks that are taken in one order only.
//!
//! Every lock has a [`Rank`]. A thread takes them in ascending order; debug builds keep the ranks that a thread holds
//! and panic at the first step back, so that every test is a test of the order too. Release builds keep nothing.
//! What each rank protects, and why the order is this one, is told in `docs/locking.md`.
//!
//! # Invariants
//! - [`Mutex::lock`] takes a rank above every rank that the thread holds; within `FileIo`, `Layout`, `Inode`,
//!   `Buffer` and `Folio` several may be held, in an order that their users keep.
//! - [`Mutex::try_lock`] may be called in any order, because it never waits.

mod brief;
mod rw;
mod taken;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(debug_assertions)]
use crossbeam_utils::atomic::AtomicCell;
use parking_lot::RawMutex;

use crate::simulation::seam::{self, Released};

pub use brief::{Brief, BriefGuard};
pub use rw::{OwnedRead, OwnedWrite, ReadGuard, RwLock, WriteGuard};

/// The place of a lock in the one order in which locks are taken: the table of all of them, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Freezing, growing, shrinking, the label: the volume as a whole.
    Volume,
    /// Writing metadata back: one batch at a time, until the device has ended it.
    Writeback,
    /// Renaming a directory to another parent.
    Rename,
    /// Writing back many files of a volume: one pass at a time.
    Pass,
    /// Writers of one file and changes of its size. Several: by inode number.
    FileIo,
    /// Writing one file back: one thread at a time. Several: tried.
    Flush,
    /// A file's map and what is written by it: shared by who reads or writes by the map, alone for who changes it.
    /// Several: by inode number, or tried.
    Layout,
    /// One file's metadata. Several: by inode number, or tried.
    Inode,
    /// A block of one file: of a directory, an extent map, a symlink. Only who holds the file's own lock waits for it,
    /// so it can be part of no circle, and it is taken and held in any order: a directory's block before or behind an
    /// AGF from which that directory grows.
    Fork,
    /// The inode header of an allocation group, by its number.
    Agi(u32),
    /// The space header of an allocation group, by its number.
    Agf(u32),
    /// Any other metadata buffer. Several: a tree's from the root down and to the right.
    Buffer,
    /// In-core state of an allocation group: busy and claimed blocks.
    Group,
    /// Pushing a checkpoint: one thread at a time. Commits never take it.
    Push,
    /// One CPU's part of the committed item list, by its number.
    CilShard(u32),
    /// What one log item waits to have written.
    ItemSlot,
    /// Which checkpoint is being built, pushed and waited for.
    Checkpoint,
    /// The in-core log buffers.
    Iclog,
    /// The active item list.
    Ail,
    /// Threads that wait for log space.
    Grant,
    /// Bytes of a file in memory. Several: by inode number and offset.
    Folio,
    /// One part of a cache's index, or a queue of background work.
    Cache,
    /// Held for a few instructions, with nothing taken under it.
    Leaf,
}

#[cfg(debug_assertions)]
impl Rank {
    /// Whether a thread may hold more than one lock of this rank, in an order that their users keep.
    fn several(self) -> bool {
        matches!(self, Self::FileIo | Self::Layout | Self::Inode | Self::Buffer | Self::Folio)
    }

    /// Whether `next` may be waited for by a thread that holds `self`.
    fn admits(self, next: Self) -> bool {
        let any_order = self == Self::Fork || next == Self::Fork;
        any_order || self < next || (self == next && self.several())
    }
}

#[cfg(debug_assertions)]
mod held {
    //! The ranks that this thread holds.

    use std::cell::RefCell;

    use super::{Rank, seam};

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Panics where waiting for `next` is a step back.
    #[track_caller]
    pub fn check(next: Rank) {
        HELD.with_borrow(|held| {
            let over = held.iter().find(|rank| !rank.admits(next));
            assert!(over.is_none(), "lock order: waits for {next:?} while it holds {over:?} (all: {held:?})");
        });
    }

    pub fn push(rank: Rank) {
        HELD.with_borrow_mut(|held| held.push(rank));
    }

    /// A guard may be dropped while its thread ends, when the list is gone.
    pub fn pop(rank: Rank) {
        seam::gave_back(rank);
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|held| *held == rank) {
                held.remove(at);
            }
        });
    }
}

/// Panics in a debug build where waiting for a lock of this rank would be a step back: for who tries such locks first,
/// and waits for one only if others hold them all, so that the order does not depend on who is quick.
#[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "release builds keep no ranks"))]
#[inline]
#[track_caller]
pub fn may_wait(rank: Rank) {
    #[cfg(debug_assertions)]
    held::check(rank);
}

/// A rank that only debug builds keep.
#[derive(Clone, Copy)]
struct Kept {
    #[cfg(debug_assertions)]
    rank: Rank,
}

impl Kept {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "release builds keep no ranks"))]
    const fn new(rank: Rank) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank,
        }
    }

    #[inline]
    #[track_caller]
    fn check(self) {
        #[cfg(debug_assertions)]
        held::check(self.rank);
    }

    /// Notes that the lock, known by the address of `lock`, was taken.
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "release builds keep no ranks"))]
    #[inline]
    fn acquired<L>(self, lock: &L) {
        #[cfg(debug_assertions)]
        {
            held::push(self.rank);
            seam::took(lock, self.rank);
        }
    }

    #[inline]
    fn released(self) {
        #[cfg(debug_assertions)]
        held::pop(self.rank);
    }
}

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
    fn kept(&self) -> Kept {
        Kept {
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

/// A mutex with a rank. It is not poisoned by a panic: what it protects must be whole between statements, or be
/// abandoned with the volume.
pub struct Mutex<T> {
    inner: parking_lot::Mutex<T>,
    rank: MutexRank,
}

impl<T> Mutex<T> {
    /// A mutex that is free.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { inner: parking_lot::Mutex::new(value), rank: MutexRank::new(rank) }
    }

    /// Waits for the lock.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.rank.kept().check();
        self.lock_out_of_order()
    }

    /// Waits for the lock though it may be a step back: a thread that holds it never waits for what this one holds.
    fn lock_out_of_order(&self) -> MutexGuard<'_, T> {
        let inner = match seam::is_simulated() {
            true => seam::acquire(&self.inner, || self.inner.try_lock()),
            false => self.inner.lock(),
        };
        self.guard(inner)
    }

    /// Takes the lock if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(self.guard(self.inner.try_lock()?))
    }

    /// The same for a lock that will be waited for if somebody has it: it must be in order all the same.
    #[inline]
    #[track_caller]
    pub fn try_lock_in_order(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        self.rank.kept().check();
        Some(self.guard(inner))
    }

    #[inline]
    fn guard<'a>(&'a self, inner: parking_lot::lock_api::MutexGuard<'a, RawMutex, T>) -> MutexGuard<'a, T> {
        let kept = self.rank.kept();
        kept.acquired(&self.inner);
        MutexGuard { inner, kept, _released: Released::new(&self.inner) }
    }

    /// Whether somebody holds the lock at this moment: for statistics.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// The value, without locking: the caller is alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// The proof that a thread holds a [`Mutex`].
pub struct MutexGuard<'a, T> {
    inner: parking_lot::lock_api::MutexGuard<'a, RawMutex, T>,
    kept: Kept,
    /// Behind `inner`: the lock is free when it is dropped.
    _released: Released,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.kept.released();
    }
}

/// The proof that a thread holds a [`Mutex`] that lies within an `O`, which it keeps alive: for locks that are held for
/// longer than a borrow can last, such as those of a transaction.
pub struct OwnedGuard<O, T> {
    mutex: NonNull<Mutex<T>>,
    owner: Arc<O>,
    /// A lock is released by the thread that took it.
    not_send: PhantomData<*mut T>,
}

impl<O, T> OwnedGuard<O, T> {
    /// Waits for the mutex that `project` finds in `owner`.
    #[inline]
    #[track_caller]
    pub fn lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T>) -> Self {
        let mutex = project(&owner);
        std::mem::forget(mutex.lock());
        Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData }
    }

    /// Waits for the mutex that `project` finds in `owner`, though the thread may hold locks of higher ranks: a thread
    /// that holds this one never waits for those.
    #[inline]
    pub fn lock_out_of_order(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T>) -> Self {
        let mutex = project(&owner);
        std::mem::forget(mutex.lock_out_of_order());
        Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData }
    }

    /// Takes the mutex that `project` finds in `owner`, if nobody has it.
    #[inline]
    pub fn try_lock(owner: Arc<O>, project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T>) -> Option<Self> {
        Self::try_into_lock(owner, project).ok()
    }

    /// The same, which gives `owner` back where somebody has it.
    ///
    /// # Errors
    /// The owner.
    #[inline]
    pub fn try_into_lock(
        owner: Arc<O>,
        project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T>,
    ) -> Result<Self, Arc<O>> {
        let mutex = project(&owner);
        let Some(guard) = mutex.try_lock() else { return Err(owner) };
        std::mem::forget(guard);
        Ok(Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData })
    }

    /// The same for a mutex that will be waited for if somebody has it: it must be in order all the same. Gives `owner`
    /// back where somebody has.
    ///
    /// # Errors
    /// The owner.
    #[inline]
    #[track_caller]
    pub fn try_lock_in_order(
        owner: Arc<O>,
        project: impl for<'a> FnOnce(&'a O) -> &'a Mutex<T>,
    ) -> Result<Self, Arc<O>> {
        let mutex = project(&owner);
        let Some(guard) = mutex.try_lock_in_order() else { return Err(owner) };
        std::mem::forget(guard);
        Ok(Self { mutex: NonNull::from(mutex), owner, not_send: PhantomData })
    }

    /// What the mutex lies within.
    pub fn owner(&self) -> &Arc<O> {
        &self.owner
    }

    /// Gives the mutex another rank: what it protects has become something else.
    pub fn change_rank(&mut self, rank: Rank) {
        self.mutex().rank.change(rank);
    }

    fn mutex(&self) -> &Mutex<T> {
        // SAFETY: `mutex` was borrowed from `*self.owner`. That the `Arc` is held means that nobody can have a unique
        // borrow of its value, and so the shared borrow may last as long.
        unsafe { self.mutex.as_ref() }
    }
}

impl<O, T> Deref for OwnedGuard<O, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock: it was taken in the constructor and forgotten there, and only `drop`
        // releases it.
        unsafe { &*self.mutex().inner.data_ptr() }
    }
}

impl<O, T> DerefMut for OwnedGuard<O, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the borrow of `self` is unique, so no other reference came from this guard.
        unsafe { &mut *self.mutex().inner.data_ptr() }
    }
}

impl<O, T> Drop for OwnedGuard<O, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex().rank.kept().released();
        // SAFETY: this guard holds the lock, and it is dropped by the thread that took it as it is not `Send`.
        unsafe { self.mutex().inner.force_unlock() };
        seam::released(&self.mutex().inner);
    }
}

/// A condition variable for [`MutexGuard`]s.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// With nobody waiting.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Gives the lock back, waits to be woken, and takes the lock again. May wake for no reason.
    ///
    /// The thread must hold no lock of a higher rank, as it waits for this one once more.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match seam::is_simulated() {
            true => drop(self.wait_simulated(guard, None)),
            false => self.0.wait(&mut guard.inner),
        }
    }

    /// The same, for `timeout` at most; whether it was woken before.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: std::time::Duration) -> bool {
        match seam::is_simulated() {
            true => self.wait_simulated(guard, Some(timeout)),
            false => !self.0.wait_for(&mut guard.inner, timeout).timed_out(),
        }
    }

    fn wait_simulated<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<std::time::Duration>) -> bool {
        let lock = parking_lot::MutexGuard::mutex(&guard.inner);
        let wait = || seam::wait(self, lock, timeout, || lock.is_locked());
        parking_lot::MutexGuard::unlocked(&mut guard.inner, wait)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
        seam::notify(self, false);
    }

    /// Wakes all of them.
    pub fn notify_all(&self) {
        self.0.notify_all();
        seam::notify(self, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Holder {
        value: Mutex<u32>,
    }

    #[test]
    fn an_owned_guard_excludes_and_keeps_its_owner_alive() {
        let holder = Arc::new(Holder { value: Mutex::new(Rank::Buffer, 1) });
        let mut guard = OwnedGuard::lock(Arc::clone(&holder), |holder| &holder.value);
        *guard += 1;
        assert!(holder.value.is_locked());
        assert!(OwnedGuard::try_lock(Arc::clone(&holder), |holder| &holder.value).is_none());
        drop(holder);
        assert_eq!(*guard, 2);
        let holder = Arc::clone(guard.owner());
        drop(guard);
        assert!(!holder.value.is_locked());
    }

    #[test]
    fn many_threads_lose_no_count() {
        let holder = Arc::new(Holder { value: Mutex::new(Rank::Leaf, 0) });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *OwnedGuard::lock(Arc::clone(&holder), |holder| &holder.value) += 1;
                    }
                });
            }
        });
        assert_eq!(*holder.value.lock(), 40_000);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_step_back_panics_and_a_try_does_not() {
        let (first, second) = (Mutex::new(Rank::Agi(1), ()), Mutex::new(Rank::Agf(0), ()));
        let _second = second.lock();
        assert!(first.try_lock().is_some());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(first.lock()))).is_err());
    }

    #[test]
    fn blocks_of_a_file_are_taken_in_any_order() {
        let (group, block) = (Mutex::new(Rank::Agf(3), ()), Mutex::new(Rank::Fork, ()));
        let held = group.lock();
        drop(block.lock());
        drop(held);
        let _held = block.lock();
        drop(group.lock());
    }

    #[test]
    fn inodes_and_buffers_may_be_held_together_and_groups_ascend() {
        let locks =
            [Rank::Inode, Rank::Inode, Rank::Agi(0), Rank::Agi(2), Rank::Agf(0), Rank::Buffer, Rank::Buffer];
        let locks = locks.map(|rank| Mutex::new(rank, ()));
        let guards: Vec<_> = locks.iter().map(Mutex::lock).collect();
        // Released in any order.
        for guard in guards {
            drop(guard);
        }
    }
}
