//! Dense numbers for the CPUs on which this process runs: a process that may use CPUs 0 and 2 of a machine has two
//! slots of per-CPU state, and both CPUs would have the same one by their numbers.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};

/// CPU numbers that are mapped. Larger ones are used as they are.
const CPUS: usize = 1024;

/// The dense number of each CPU, given when a thread is first seen on it. It is a hint, so that no lock is needed,
/// which a thread that holds other locks could not take: of two threads that change numbers at once, one may be
/// overruled.
#[derive(Debug)]
pub(super) struct DenseNumbers {
    /// One more than the dense number; 0 if the CPU has none yet.
    numbers: [AtomicU16; CPUS],
    /// How many CPUs have one.
    count: AtomicUsize,
}

impl DenseNumbers {
    pub const fn new() -> Self {
        Self { numbers: [const { AtomicU16::new(0) }; CPUS], count: AtomicUsize::new(0) }
    }

    /// The dense number of a CPU. `available` is the number of slots that all per-CPU state has; `allowed` returns the
    /// number of CPUs that the process may use now.
    #[inline]
    pub fn of(&self, cpu: usize, available: usize, allowed: impl Fn() -> usize) -> usize {
        // With one slot all CPUs have the same.
        let Some(number) = self.numbers.get(cpu).filter(|_| available > 1) else { return cpu };
        match number.load(Relaxed) {
            0 => self.assign(number, available, allowed()),
            number => usize::from(number) - 1,
        }
    }

    /// Gives a CPU the next number. If all slots have a CPU, and the process is not allowed more CPUs than that, it was
    /// moved to others: the numbers begin again.
    #[cold]
    fn assign(&self, number: &AtomicU16, available: usize, allowed: usize) -> usize {
        if self.count.load(Relaxed) >= available && allowed <= available {
            self.numbers.iter().for_each(|number| number.store(0, Relaxed));
            self.count.store(0, Relaxed);
        }
        let dense = self.count.fetch_add(1, Relaxed) % available.max(1);
        number.store(u16::try_from(dense + 1).unwrap_or(1), Relaxed);
        dense
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_a_sparse_mask_get_slots_of_their_own() {
        let numbers = DenseNumbers::new();
        let of = |cpu| numbers.of(cpu, 2, || 2);
        assert_eq!((of(0), of(2), of(0), of(2)), (0, 1, 0, 1));
    }

    #[test]
    fn numbers_begin_again_when_the_process_is_moved() {
        let numbers = DenseNumbers::new();
        let of = |cpu| numbers.of(cpu, 2, || 2);
        assert_eq!((of(0), of(1)), (0, 1));
        assert_eq!((of(3), of(2), of(3)), (0, 1, 0));
    }

    #[test]
    fn more_cpus_than_slots_share_them() {
        let numbers = DenseNumbers::new();
        let of = |cpu| numbers.of(cpu, 2, || 4);
        assert_eq!([7, 5, 3, 1].map(of), [0, 1, 0, 1]);
        assert_eq!([7, 5, 3, 1].map(of), [0, 1, 0, 1]);
        assert_eq!(of(CPUS + 4), CPUS + 4);
    }
}
