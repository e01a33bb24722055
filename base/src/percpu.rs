//! State of which each CPU has its own, so that CPUs do not meet on a cache line.
//!
//! | part | does |
//! |---|---|
//! | [`current`] | the CPU that the thread runs on, as a hint |
//! | [`PerCpu`] | one value for each CPU, each on cache lines of its own |
//! | [`Counter`] | a number that is changed by all and rarely read, and never falls below zero |
//!
//! # Invariants
//! The CPU is a hint: a thread can move at any time, CPUs come and go, and there may be more of them than slots. So a
//! slot is always correct to be used by any thread; only the speed depends on the hint.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::lock::{Mutex, Rank};

thread_local! {
    static PRETENDED: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The CPU that this thread runs on, or the one that [`pretend`] told.
#[inline]
pub fn current() -> usize {
    match PRETENDED.get() {
        usize::MAX => rustix::thread::sched_getcpu(),
        pretended => pretended,
    }
}

/// From now on this thread says that it runs on `cpu`; `None` ends that. For tests that replay a run, and for showing
/// what more CPUs would share.
pub fn pretend(cpu: Option<usize>) {
    PRETENDED.set(cpu.unwrap_or(usize::MAX));
}

/// How many CPUs this process may use now.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One `T` for each CPU.
#[derive(Debug)]
pub struct PerCpu<T> {
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// `slots` values; at least one.
    pub fn new(slots: usize, mut value: impl FnMut(usize) -> T) -> Self {
        Self { slots: (0..slots.max(1)).map(|slot| CachePadded::new(value(slot))).collect() }
    }

    /// The slot of the current CPU: its number and its value.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a remainder of the length, which is not zero")]
    pub fn local(&self) -> (usize, &T) {
        let slot = current() % self.slots.len();
        (slot, &self.slots[slot])
    }

    /// Every value, by slot.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.slots.iter().map(|slot| &**slot)
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }
}

/// How much a CPU may hold back from [`Counter`]'s common part.
const BATCH: i64 = 1024;

/// A number that all CPUs change, such as the free blocks of a volume.
///
/// A CPU takes from and gives to a part of its own, and fetches from the common part in batches.
///
/// # Invariants
/// No part is ever negative: what [`try_sub`](Self::try_sub) granted was there. It refuses only if all parts together,
/// as gathered under a lock, are too few.
#[derive(Debug)]
pub struct Counter {
    common: CachePadded<AtomicI64>,
    parts: PerCpu<AtomicI64>,
    gathering: Mutex<()>,
}

impl Counter {
    /// A counter that holds `value`.
    pub fn new(value: u64) -> Self {
        Self {
            common: CachePadded::new(AtomicI64::new(clamp(value))),
            parts: PerCpu::new(available(), |_| AtomicI64::new(0)),
            gathering: Mutex::new(Rank::Leaf, ()),
        }
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        let (_, part) = self.parts.local();
        let now = part.fetch_add(clamp(count), Relaxed) + clamp(count);
        if now > 2 * BATCH && take(part, now - BATCH) {
            self.common.fetch_add(now - BATCH, Relaxed);
        }
    }

    /// Takes `count` away if there is so much.
    #[inline]
    pub fn try_sub(&self, count: u64) -> bool {
        let (_, part) = self.parts.local();
        let wanted = clamp(count);
        if take(part, wanted) {
            return true;
        }
        if take(&self.common, wanted + BATCH) {
            part.fetch_add(BATCH, Relaxed);
            return true;
        }
        self.gather(wanted)
    }

    /// Near zero: all parts are put together first.
    #[cold]
    fn gather(&self, wanted: i64) -> bool {
        let _alone = self.gathering.lock();
        for part in self.parts.iter() {
            let found = part.swap(0, Relaxed);
            self.common.fetch_add(found, Relaxed);
        }
        take(&self.common, wanted)
    }

    /// The sum of all parts: exact while nobody changes it.
    pub fn sum(&self) -> u64 {
        let _alone = self.gathering.lock();
        let parts: i64 = self.parts.iter().map(|part| part.load(Relaxed)).sum();
        u64::try_from(self.common.load(Relaxed) + parts).unwrap_or(0)
    }
}

/// Takes `wanted` from `part` unless it would become negative.
fn take(part: &AtomicI64, wanted: i64) -> bool {
    part.fetch_update(Relaxed, Relaxed, |have| (have >= wanted).then_some(have - wanted)).is_ok()
}

/// No count of a volume comes near to this limit.
fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pretended_cpu_is_believed_and_any_number_has_a_slot() {
        let slots = PerCpu::new(3, |slot| slot);
        for cpu in [0, 1, 2, 3, 7, 1 << 20] {
            pretend(Some(cpu));
            assert_eq!(slots.local(), (cpu % 3, &(cpu % 3)));
        }
        pretend(None);
        assert!(slots.local().0 < 3);
    }

    #[test]
    fn the_last_one_can_be_taken_wherever_it_lies() {
        let counter = Counter { parts: PerCpu::new(4, |_| AtomicI64::new(0)), ..Counter::new(5000) };
        for cpu in 0..4 {
            pretend(Some(cpu));
            assert!(counter.try_sub(10));
        }
        assert_eq!(counter.sum(), 4960);
        assert!(!counter.try_sub(4961));
        assert!(counter.try_sub(4960));
        assert!(!counter.try_sub(1));
        counter.add(3);
        pretend(Some(1));
        assert!(counter.try_sub(3));
        assert_eq!(counter.sum(), 0);
        pretend(None);
    }

    #[test]
    fn threads_take_exactly_what_there_is() {
        let counter = Counter { parts: PerCpu::new(3, |_| AtomicI64::new(0)), ..Counter::new(10_000) };
        let taken: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4usize)
                .map(|cpu| {
                    let counter = &counter;
                    scope.spawn(move || {
                        pretend(Some(cpu));
                        let mut taken = 0;
                        for round in 0..40_000u64 {
                            if counter.try_sub(3) {
                                taken += 3;
                            }
                            if round % 5 == 0 && taken > 0 {
                                counter.add(1);
                                taken -= 1;
                            }
                        }
                        taken
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(u64::MAX)).sum()
        });
        assert_eq!(taken + counter.sum(), 10_000);
    }
}
