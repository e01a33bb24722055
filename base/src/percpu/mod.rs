//! Per-CPU state, so that CPUs do not share cache lines.
//!
//! | part | subject |
//! |---|---|
//! | [`current`] | the CPU of the thread, as a hint |
//! | [`PerCpu`] | one value per CPU, each on its own cache lines |
//! | `dense` | numbers for the CPUs that the process uses |
//! | [`Amount`] | a sum changed by all CPUs, cheap to read and not exact |
//! | [`CpuRefs`] | references to one object, without a shared reference count |
//! | [`Counter`] | a counter that is never negative, changed by all CPUs and rarely read |
//!
//! # Invariants
//! The CPU is a hint: threads migrate, CPUs are hotplugged, and there may be more CPUs than slots. Any thread may use
//! any slot; only the speed depends on the hint.

mod amount;
mod counter;
mod cpu_ref;
mod dense;

use std::cell::Cell;
use std::sync::OnceLock;

use crossbeam_utils::CachePadded;

pub use amount::Amount;
pub use counter::Counter;
pub use cpu_ref::{CpuRef, CpuRefs};
use dense::DenseNumbers;

use crate::simulation::hooks;

/// Number of uses of a cached CPU number before it is read again: a few file system operations.
const TRUSTED: u32 = 64;

thread_local! {
    /// The cached CPU number, and its remaining uses.
    static KNOWN: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// The dense number of the CPU on which this thread ran recently, or the one set by [`override_current`].
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
    static NUMBERS: DenseNumbers = DenseNumbers::new();
    let cpu = NUMBERS.of(rustix::thread::sched_getcpu(), available(), allowed);
    KNOWN.set((cpu, TRUSTED));
    cpu
}

/// Makes this thread report `cpu` as its CPU; `None` ends that. For tests that replay a run, and to show what more CPUs
/// would share.
pub fn override_current(cpu: Option<usize>) {
    KNOWN.set(cpu.map_or((0, 0), |cpu| (cpu, u32::MAX)));
}

/// The number of CPUs available to this process, determined once: the system call costs more than opening a small
/// volume.
pub fn available() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    if let Some(cpus) = hooks::cpus() {
        return cpus;
    }
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The number of CPUs on which this thread may run now. More than are [available] if a quota limits their time.
fn allowed() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(usize::MAX, |cpus| cpus.count() as usize)
}

/// One `T` for each CPU.
#[derive(Debug)]
pub struct PerCpu<T> {
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// Creates `slots` values; at least one.
    pub fn new(slots: usize, mut value: impl FnMut(usize) -> T) -> Self {
        Self { slots: (0..slots.max(1)).map(|slot| CachePadded::new(value(slot))).collect() }
    }

    /// The slot of the current CPU: its number and its value.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a remainder of the length, which is not zero")]
    pub fn local(&self) -> (usize, &T) {
        let (cpu, slots) = (current(), self.slots.len());
        // Divide only if there are more CPUs than slots.
        let slot = if cpu < slots { cpu } else { cpu % slots };
        (slot, &self.slots[slot])
    }

    /// All values in slot order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.slots.iter().map(|slot| &**slot)
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overridden_cpu_is_reported_and_any_number_has_a_slot() {
        let slots = PerCpu::new(3, |slot| slot);
        for cpu in [0, 1, 2, 3, 7, 1 << 20] {
            override_current(Some(cpu));
            assert_eq!(slots.local(), (cpu % 3, &(cpu % 3)));
        }
        override_current(None);
        assert!(slots.local().0 < 3);
    }

    #[test]
    fn the_last_unit_can_be_taken_from_any_share() {
        let counter = Counter::with_parts(4, 5000);
        for cpu in 0..4 {
            override_current(Some(cpu));
            assert!(counter.try_sub(10));
        }
        assert_eq!(counter.sum(), 4960);
        assert!(!counter.try_sub(4961));
        assert!(counter.try_sub(4960));
        assert!(!counter.try_sub(1));
        counter.add(3);
        override_current(Some(1));
        assert!(counter.try_sub(3));
        assert_eq!(counter.sum(), 0);
        override_current(None);
    }

    #[test]
    fn threads_take_exactly_the_available_amount() {
        let counter = Counter::with_parts(3, 10_000);
        let taken: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4usize)
                .map(|cpu| {
                    let counter = &counter;
                    scope.spawn(move || {
                        override_current(Some(cpu));
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
