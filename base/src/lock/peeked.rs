//! Mutexes whose value is read without the lock, as with [`RwLock::peek`](super::RwLock::peek), if it is read often.
//!
//! # Invariants
//! A guard gives access for changes only after [`Peeks::locked`] and [`Peeks::changing`] were called with the lock
//! held. One of the two waits for the sections that read the value.

use parking_lot::RawMutex;
use parking_lot::lock_api;

use super::read_count::ReadCount;

/// Reads after which a value is read without the lock. Reads by several CPUs in turns count more: a grace period takes
/// about as long as 16 accesses to a lock that another CPU has changed.
pub(super) type Reads = ReadCount<256, 16>;

/// A raw mutex, and what it does about threads that read the value without it.
pub trait Peeks: lock_api::RawMutex {
    /// The lock was taken by a thread that may change the value.
    fn locked(&self);
    /// The thread that holds the lock is about to change the value.
    fn changing(&self);
}

impl Peeks for RawMutex {
    #[inline]
    fn locked(&self) {}
    #[inline]
    fn changing(&self) {}
}

/// A raw mutex of a value that may be read without the lock.
pub struct RawPeekMutex<const UNTIL_LOCKED: bool> {
    raw: RawMutex,
    reads: Reads,
}

/// The raw mutex of a value that is read without the lock until a thread locks it to change it.
pub type UntilLocked = RawPeekMutex<true>;

/// The raw mutex of a value that is read without the lock until a thread that has locked it changes it: for values that
/// are locked much more often than changed. Each mutable access through a guard costs a load.
pub type UntilChanged = RawPeekMutex<false>;

impl<const UNTIL_LOCKED: bool> RawPeekMutex<UNTIL_LOCKED> {
    pub(super) fn reads(&self) -> &Reads {
        &self.reads
    }
}

// SAFETY: all functions are those of a mutex.
unsafe impl<const UNTIL_LOCKED: bool> lock_api::RawMutex for RawPeekMutex<UNTIL_LOCKED> {
    const INIT: Self = Self { raw: RawMutex::INIT, reads: Reads::new() };
    type GuardMarker = <RawMutex as lock_api::RawMutex>::GuardMarker;

    #[inline]
    fn lock(&self) {
        self.raw.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.raw.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.raw.unlock() };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

impl<const UNTIL_LOCKED: bool> Peeks for RawPeekMutex<UNTIL_LOCKED> {
    #[inline]
    fn locked(&self) {
        if UNTIL_LOCKED {
            self.reads.end_sections();
        }
    }

    #[inline]
    fn changing(&self) {
        if !UNTIL_LOCKED {
            self.reads.end_sections();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::{Mutex, OwnedMutexGuard, Peeked, Rank};
    use super::*;
    use crate::{percpu, rcu};

    type PeekMutex<T, const UNTIL_LOCKED: bool> = Mutex<T, RawPeekMutex<UNTIL_LOCKED>>;

    /// Reads by two CPUs in turns, until the value is read without the lock.
    fn read_often<const UNTIL_LOCKED: bool>(value: &PeekMutex<u32, UNTIL_LOCKED>) {
        for read in 0..40 {
            percpu::override_current(Some(read % 2));
            value.peek(|_| ());
        }
        percpu::override_current(None);
        assert_eq!(read_without_lock(value), Some(1));
    }

    fn read_without_lock<T: Copy + Sync, const UNTIL_LOCKED: bool>(
        value: &PeekMutex<T, UNTIL_LOCKED>,
    ) -> Option<T> {
        rcu::read(|section| match value.peek_in(section) {
            Some(Peeked::Unlocked(value)) => Some(*value),
            Some(Peeked::Locked(_)) | None => None,
        })
    }

    /// Sets a flag when it is dropped, also by a panic: a scope waits for its threads.
    struct SetOnDrop<'a>(&'a AtomicBool);

    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn readers_never_see_a_value_that_is_being_changed<const UNTIL_LOCKED: bool>() {
        const CHANGES: u32 = 40;
        let pair = Arc::new(PeekMutex::<_, UNTIL_LOCKED>::new_peeked(Rank::Buffer, (0, 0)));
        let (stop, seen) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _stop = SetOnDrop(&stop);
            let readers = [0, 1].map(|cpu| {
                let (pair, stop, seen) = (&pair, &stop, &seen);
                scope.spawn(move || {
                    percpu::override_current(Some(cpu));
                    while !stop.load(Ordering::Relaxed) {
                        assert!(pair.peek(|(first, second)| first == second));
                        let peeked = rcu::read(|section| pair.peek_in(section).map(|pair| pair.0 == pair.1));
                        assert!(peeked != Some(false));
                        let unlocked = read_without_lock(pair);
                        assert!(unlocked.is_none_or(|(first, second)| first == second));
                        seen.fetch_or(unlocked.is_some(), Ordering::Relaxed);
                    }
                })
            });
            for n in 0..CHANGES {
                // Each time with readers that take no lock.
                while !seen.swap(false, Ordering::Relaxed) {
                    assert!(!readers.iter().any(|reader| reader.is_finished()), "a reader failed");
                    std::thread::yield_now();
                }
                let mut pair = OwnedMutexGuard::lock(Arc::clone(&pair), |pair| pair);
                assert_eq!(*pair, (n, n));
                pair.0 += 1;
                std::thread::yield_now();
                pair.1 += 1;
            }
        });
        assert_eq!(pair.peek(|pair| *pair), (CHANGES, CHANGES));
    }

    #[test]
    fn readers_that_take_no_lock_never_see_a_value_that_is_being_changed() {
        readers_never_see_a_value_that_is_being_changed::<true>();
        readers_never_see_a_value_that_is_being_changed::<false>();
    }

    #[test]
    fn a_value_that_is_locked_to_be_read_is_read_without_the_lock() {
        let value = Mutex::<_, UntilLocked>::new_peeked(Rank::Inode, 1);
        read_often(&value);
        let locked = value.lock_to_read();
        assert_eq!(read_without_lock(&value), Some(*locked));
        drop(locked);
        drop(value.lock());
        assert_eq!(read_without_lock(&value), None);
    }

    #[test]
    fn a_locked_value_is_read_without_the_lock_until_it_is_changed() {
        let value = Mutex::<_, UntilChanged>::new_peeked(Rank::Buffer, 1);
        read_often(&value);
        let mut locked = value.lock();
        assert_eq!(read_without_lock(&value), Some(*locked));
        *locked = 2;
        assert_eq!(read_without_lock(&value), None);
        drop(locked);
        assert_eq!(value.peek(|value| *value), 2);
    }

    #[test]
    fn a_section_does_not_wait_for_a_lock() {
        let value = Mutex::<_, UntilChanged>::new_peeked(Rank::Buffer, 1);
        let locked = value.lock();
        assert!(rcu::read(|section| value.peek_in(section).is_none()));
        drop(locked);
        assert_eq!(rcu::read(|section| value.peek_in(section).map(|value| *value)), Some(1));
    }

    #[test]
    fn a_change_waits_for_those_that_read_without_the_lock() {
        let value = Mutex::<_, UntilLocked>::new_peeked(Rank::Inode, 1);
        read_often(&value);
        std::thread::scope(|scope| {
            let value = &value;
            rcu::read(|section| {
                let peeked = value.peek_in(section);
                let writer = scope.spawn(move || *value.lock() = 2);
                // Until the writer has the lock, and waits for this section.
                while let Some(Peeked::Unlocked(_)) = value.peek_in(section) {
                    std::thread::yield_now();
                }
                for _ in 0..100 {
                    assert_eq!((peeked.as_deref(), writer.is_finished()), (Some(&1), false));
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(*value.lock(), 2);
    }

    /// Whether that happens would otherwise depend on how often the value was read.
    #[test]
    #[cfg(debug_assertions)]
    fn a_change_in_a_section_fails_even_if_nobody_reads() {
        let in_section = |change: &dyn Fn()| {
            let change = std::panic::AssertUnwindSafe(|| rcu::read(|_| change()));
            std::panic::catch_unwind(change).is_err()
        };
        let until_locked = Mutex::<_, UntilLocked>::new_peeked(Rank::Inode, 1);
        let until_changed = Mutex::<_, UntilChanged>::new_peeked(Rank::Buffer, 1);
        assert!(in_section(&|| drop(until_locked.try_lock())));
        assert!(!in_section(&|| drop(until_changed.try_lock())));
        assert!(in_section(&|| *until_changed.try_lock().unwrap() = 2));
    }

    /// A program with one thread pays no grace period for some reads between its changes.
    #[test]
    fn reads_by_one_cpu_count_less_than_reads_in_turns() {
        let reads_until_without_lock = |cpus: usize| {
            let value = Mutex::<_, UntilLocked>::new_peeked(Rank::Inode, 1);
            let mut cpu = (0..cpus).cycle();
            let reads = (0..).take_while(|_| {
                percpu::override_current(cpu.next());
                read_without_lock(&value).is_none()
            });
            let reads = reads.count();
            percpu::override_current(None);
            reads
        };
        assert_eq!((reads_until_without_lock(1), reads_until_without_lock(2)), (256, 17));
    }
}
