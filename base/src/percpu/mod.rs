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

mod counter;

use std::cell::Cell;
use std::sync::OnceLock;

use crossbeam_utils::CachePadded;

pub use counter::Counter;

use crate::simulation::seam;

/// The machine is asked again after so many questions: a few changes of a file system.
const TRUSTED: u32 = 64;

thread_local! {
    /// The CPU, and how often it may still be told without asking the machine.
    static KNOWN: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// The CPU that this thread ran on a moment ago, or the one that [`pretend`] told.
#[inline]
pub fn current() -> usize {
    let (cpu, trusted) = KNOWN.get();
    match trusted {
        0 => ask(),
        u32::MAX => cpu,
        trusted => {
            KNOWN.set((cpu, trusted - 1));
            cpu
        }
    }
}

#[cold]
fn ask() -> usize {
    let cpu = rustix::thread::sched_getcpu();
    KNOWN.set((cpu, TRUSTED));
    cpu
}

/// From now on this thread says that it runs on `cpu`; `None` ends that. For tests that replay a run, and for showing
/// what more CPUs would share.
pub fn pretend(cpu: Option<usize>) {
    KNOWN.set(cpu.map_or((0, 0), |cpu| (cpu, u32::MAX)));
}

/// How many CPUs this process could use when it asked first: finding out costs more than opening a small volume.
pub fn available() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    if let Some(cpus) = seam::cpus() {
        return cpus;
    }
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
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
        let (cpu, slots) = (current(), self.slots.len());
        // A division only where there are more CPUs than slots.
        let slot = if cpu < slots { cpu } else { cpu % slots };
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
        let counter = Counter::with_parts(4, 5000);
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
        let counter = Counter::with_parts(3, 10_000);
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
