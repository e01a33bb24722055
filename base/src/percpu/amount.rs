//! A counter that all CPUs change and that is cheap to read, such as bytes in memory (like the kernel's
//! `percpu_counter`).
//!
//! # Invariants
//! [`Amount::get`] is off by at most one batch for each CPU.

use super::{PerCpu, available};
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// A sum that all CPUs change. Reading it is cheap and not exact: each CPU keeps some of its changes to itself.
#[derive(Debug)]
pub struct Amount {
    common: AtomicI64,
    parts: PerCpu<AtomicI64>,
    batch: i64,
}

impl Amount {
    /// Zero. [`get`](Self::get) is exact to a sixteenth of `limit`.
    pub fn new(limit: u64) -> Self {
        let cpus = available();
        let batch = signed(limit) / 16 / cpus as i64;
        Self {
            common: AtomicI64::new(0),
            parts: PerCpu::new(cpus, |_| AtomicI64::new(0)),
            batch: batch.min(1 << 20),
        }
    }

    fn change(&self, by: i64) {
        let (_, part) = self.parts.local();
        let now = part.fetch_add(by, Relaxed) + by;
        if now.abs() > self.batch {
            self.common.fetch_add(part.swap(0, Relaxed), Relaxed);
        }
    }

    /// Adds to the sum.
    #[inline]
    pub fn add(&self, by: u64) {
        self.change(signed(by));
    }

    /// Subtracts from the sum.
    #[inline]
    pub fn sub(&self, by: u64) {
        self.change(-signed(by));
    }

    /// The sum without what CPUs keep to themselves.
    #[inline]
    pub fn get(&self) -> u64 {
        u64::try_from(self.common.load(Relaxed)).unwrap_or(0)
    }

    /// The exact sum, while no thread changes it.
    pub fn exact(&self) -> u64 {
        let parts: i64 = self.parts.iter().map(|part| part.load(Relaxed)).sum();
        u64::try_from(self.common.load(Relaxed) + parts).unwrap_or(0)
    }
}

fn signed(by: u64) -> i64 {
    i64::try_from(by).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::percpu;

    #[test]
    fn the_sum_is_exact_and_a_look_nearly_so() {
        let amount = Amount::new(1 << 20);
        for cpu in 0..1000usize {
            percpu::override_current(Some(cpu));
            amount.add(4096);
            if cpu % 4 == 0 {
                amount.sub(4096);
            }
        }
        percpu::override_current(None);
        assert_eq!(amount.exact(), 750 * 4096);
        assert!(amount.get().abs_diff(750 * 4096) <= (1 << 20) / 16);
    }
}
