//! Locks with ranks, which define the lock order.
//!
//! Every lock has a [`Rank`], and a thread takes locks in ascending order. Debug builds record the ranks that a thread
//! holds and panic on a violation, so that every test also tests the order. Release builds record nothing.
//! `docs/locking.md` explains what each rank protects, and the reasons for the order.
//!
//! # Invariants
//! - [`Mutex::lock`] takes a rank above every rank that the thread holds. For `FileIo`, `Layout`, `Inode`, `Buffer` and
//!   `Folio` a thread may hold several locks of the rank, in an order that the callers define.
//! - [`Mutex::try_lock`] may be called in any order, because it never waits for a holder of the lock.

mod mutex;
mod peeked;
mod raw_spin;
mod read_count;
mod rw;
mod spin;
mod unlocked_reads;

use crate::simulation::hooks;

pub use mutex::{Mutex, MutexGuard, MutexReadGuard, OwnedMutexGuard, Peeked};
pub use peeked::{UntilChanged, UntilLocked};
pub use rw::{OwnedReadGuard, OwnedWriteGuard, ReadGuard, RwLock, WriteGuard};
pub use spin::{SpinLock, SpinLockGuard};
#[cfg(debug_assertions)]
pub use unlocked_reads::unlocked_reads;

/// How many locks guard what a volume has in memory of names and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locks {
    /// Locks of parts and of single objects; readers take none.
    #[default]
    Fine,
    /// One lock for all names, and one for all inodes and their order of eviction, which lookups take, too. It is what
    /// the fine ones are compared with, for inodes that are in memory: an inode is also read again if another one was
    /// evicted meanwhile.
    Coarse,
}

/// The lock order: all ranks, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The volume as a whole: freeze, grow, shrink, label.
    Volume,
    /// Metadata writeback: one batch at a time, until its I/O has completed.
    Writeback,
    /// Renaming a directory to another parent.
    Rename,
    /// Writeback of all files of a volume: one pass at a time.
    Pass,
    /// Writers of a file and changes of its size. Several: by inode number.
    FileIo,
    /// Writeback of a file: one thread at a time. Several: with `try_lock`.
    Flush,
    /// The extent map of a file and I/O that uses it: shared for reading and writing by the map, exclusive for changing
    /// it. Several: by inode number, or with `try_lock`.
    Layout,
    /// The metadata of a file. Several: by inode number, or with `try_lock`.
    Inode,
    /// A block of a fork: of a directory, an extent map, a symlink. Only the holder of the file's own lock waits for
    /// it, so it cannot be part of a deadlock and may be taken in any order, such as a directory block before or after
    /// the AGF from which the directory grows.
    Fork,
    /// The AGI of an allocation group, by AG number.
    Agi(u32),
    /// The AGF of an allocation group, by AG number.
    Agf(u32),
    /// Any other metadata buffer. Several: btree blocks from the root down and to the right.
    Buffer,
    /// In-core state of an allocation group: busy and claimed extents.
    Group,
    /// Pushing a checkpoint: one thread at a time. Commits never take it.
    Push,
    /// The CIL shard of a CPU, by its number.
    CilShard(u32),
    /// The pending state of a log item.
    ItemSlot,
    /// The checkpoints being built, pushed and waited for.
    Checkpoint,
    /// The in-core log buffers.
    Iclog,
    /// The AIL.
    Ail,
    /// Threads waiting for log space.
    Grant,
    /// Data of a file in the cache. Several: by inode number and offset.
    Folio,
    /// A shard of a cache index, a queue of background work, or the watched directories of a volume.
    Cache,
    /// Removed objects of a CPU that wait for a grace period.
    Retired,
    /// The head of a volume on a store: replaced by one thread at a time.
    StoreHead,
    /// The log and the map of a volume on a store.
    StoreLog,
    /// Held for a few instructions, with no other lock taken under it.
    Leaf,
}

#[cfg(debug_assertions)]
impl Rank {
    /// Whether a thread may hold several locks of this rank, in an order that the callers define.
    fn several(self) -> bool {
        matches!(self, Self::FileIo | Self::Layout | Self::Inode | Self::Buffer | Self::Folio)
    }

    /// Whether a thread that holds `self` may wait for `next`.
    fn admits(self, next: Self) -> bool {
        let any_order = self == Self::Fork || next == Self::Fork;
        any_order || self < next || (self == next && self.several())
    }
}

#[cfg(debug_assertions)]
mod held {
    //! The ranks that this thread holds.

    use std::cell::RefCell;

    use super::{Rank, hooks};

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Panics if waiting for `next` violates the lock order.
    #[track_caller]
    pub fn check(next: Rank) {
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            let over = held.iter().find(|rank| !rank.admits(next));
            assert!(
                over.is_none(),
                "lock order violation: waiting for {next:?} while holding {over:?} (all: {held:?})"
            );
        });
    }

    // A thread takes and releases locks also while it ends, when the list may no longer exist.

    pub fn push(rank: Rank) {
        let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
    }

    pub fn pop(rank: Rank) {
        hooks::on_unlock(rank);
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|held| *held == rank) {
                held.remove(at);
            }
        });
    }
}

/// Panics in a debug build if waiting for a lock of this rank would violate the lock order. For callers that first try
/// several locks and wait only if all are held, so that the check does not depend on timing.
#[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "release builds keep no ranks"))]
#[inline]
#[track_caller]
pub fn might_lock(rank: Rank) {
    #[cfg(debug_assertions)]
    held::check(rank);
}

/// A rank that is stored in debug builds only.
#[derive(Clone, Copy)]
struct TrackedRank {
    #[cfg(debug_assertions)]
    rank: Rank,
}

impl TrackedRank {
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

    /// Records that the lock at the address of `lock` was taken.
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "release builds keep no ranks"))]
    #[inline]
    fn acquired<L>(self, lock: &L) {
        #[cfg(debug_assertions)]
        {
            held::push(self.rank);
            hooks::on_lock(lock, self.rank);
        }
    }

    #[inline]
    fn released(self) {
        #[cfg(debug_assertions)]
        held::pop(self.rank);
    }
}

/// A condition variable for [`MutexGuard`]s.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again. Spurious wakeups are possible.
    ///
    /// The thread must hold no lock of a higher rank, because it waits for this one again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match hooks::is_simulated() {
            true => drop(self.wait_simulated(guard, None)),
            false => self.0.wait(&mut guard.inner),
        }
    }

    /// Like [`Self::wait`] with a timeout. Returns whether it was notified before the timeout.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: std::time::Duration) -> bool {
        match hooks::is_simulated() {
            true => self.wait_simulated(guard, Some(timeout)),
            false => !self.0.wait_for(&mut guard.inner, timeout).timed_out(),
        }
    }

    fn wait_simulated<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<std::time::Duration>) -> bool {
        let lock = parking_lot::MutexGuard::mutex(&guard.inner);
        let wait = || hooks::wait(self, lock, timeout, || lock.is_locked());
        parking_lot::MutexGuard::unlocked(&mut guard.inner, wait)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
        hooks::notify(self, false);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
        hooks::notify(self, true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Holder {
        value: Mutex<u32>,
    }

    #[test]
    fn an_owned_guard_locks_and_keeps_its_owner_alive() {
        let holder = Arc::new(Holder { value: Mutex::new(Rank::Buffer, 1) });
        let mut guard = OwnedMutexGuard::lock(Arc::clone(&holder), |holder| &holder.value);
        *guard += 1;
        assert!(holder.value.inner.is_locked());
        assert!(OwnedMutexGuard::try_lock(Arc::clone(&holder), |holder| &holder.value).is_none());
        drop(holder);
        assert_eq!(*guard, 2);
        let holder = Arc::clone(guard.owner());
        drop(guard);
        assert!(!holder.value.inner.is_locked());
    }

    #[test]
    fn concurrent_additions_are_not_lost() {
        let holder = Arc::new(Holder { value: Mutex::new(Rank::Leaf, 0) });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *OwnedMutexGuard::lock(Arc::clone(&holder), |holder| &holder.value) += 1;
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
