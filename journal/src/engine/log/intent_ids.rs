//! Identifiers of intents: each CPU has its own, so that CPUs do not share a counter.
//!
//! An identifier ties a done item to its intent. Recovery only compares it: the order of intents is that of the log.
//!
//! # Invariants
//! An identifier is unique among the intents of this mount, and differs from those that earlier mounts left in the log.
//! They started at an earlier head. An intent takes at least 44 bytes of the log, so one block of 512 bytes has at most
//! 11 of them, while [`BLOCK_SHIFT`] gives it 65,536 identifiers: enough if the other [`SLOTS_MAX`] CPUs skip theirs.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Lsn;
use base::percpu::{self, PerCpu};

/// log2 of the identifiers for one block of the log.
const BLOCK_SHIFT: u32 = 16;
/// The most slots. More CPUs share them.
const SLOTS_MAX: usize = 4096;

/// Source of the identifiers of intents.
#[derive(Debug)]
pub struct IntentIds {
    /// The next identifier of each CPU. They advance by the number of slots.
    next: PerCpu<AtomicU64>,
}

impl IntentIds {
    /// Identifiers for intents after `head`, the head of the log when it was opened.
    pub fn new(head: Lsn) -> Self {
        let first = head.get() << BLOCK_SHIFT;
        let slot = |slot| AtomicU64::new(first.wrapping_add(slot as u64));
        Self { next: PerCpu::new(percpu::available().min(SLOTS_MAX), slot) }
    }

    /// A new identifier.
    pub fn next(&self) -> u64 {
        self.next.local().1.fetch_add(self.next.slots() as u64, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn identifiers_of_all_cpus_differ_and_leave_those_of_later_heads() {
        let ids = IntentIds::new(Lsn::new(3, 100));
        let mut seen = HashSet::new();
        // As many as a block of the log can have, on each CPU.
        for cpu in 0..2 * percpu::available() {
            percpu::override_current(Some(cpu));
            (0..11).for_each(|_| assert!(seen.insert(ids.next()), "an identifier is used twice"));
        }
        percpu::override_current(None);
        let range = Lsn::new(3, 100).get() << BLOCK_SHIFT..Lsn::new(3, 101).get() << BLOCK_SHIFT;
        assert!(seen.iter().all(|id| range.contains(id)));
        const { assert!(11 * SLOTS_MAX as u64 <= 1 << BLOCK_SHIFT) };
    }
}
