//! The counters of each CPU.
//!
//! A count in per-CPU mode owns a slot: the counter with that number of each CPU. The counters of one CPU are beside
//! each other, and no other CPU uses them until the slot's count is collected.

use std::sync::OnceLock;

use crate::lock::{Rank, SpinLock};
use crate::percpu::{self, PerCpu};
use crate::sync::atomic::{AtomicU64, Ordering};

/// log2 of the number of slots. If more counts would be in per-CPU mode, they stay in one word each.
pub(super) const SLOTS_LOG: u32 = 15;
/// Counters that are allocated together: two pages.
const SEGMENT: usize = 1024;
const SEGMENTS: usize = (1 << SLOTS_LOG) / SEGMENT;

/// Counters, allocated when the first of them is used.
type Segment = OnceLock<Box<[AtomicU64]>>;

/// The counters of all CPUs.
#[derive(Debug)]
pub(super) struct Counters {
    cpus: PerCpu<[Segment; SEGMENTS]>,
    slots: SpinLock<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// Slots that were returned.
    free: Vec<u16>,
    /// The first slot that was never used.
    fresh: usize,
}

impl Default for Counters {
    fn default() -> Self {
        let slots = Slots { free: Vec::new(), fresh: 0 };
        Self {
            cpus: PerCpu::new(percpu::available(), |_| std::array::from_fn(|_| OnceLock::new())),
            slots: SpinLock::new(Rank::Leaf, slots),
        }
    }
}

impl Counters {
    /// Allocates a slot, whose counters are zero; `None` if there are none left.
    pub fn allocate(&self) -> Option<u16> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.free.pop() {
            return Some(slot);
        }
        let slot = u16::try_from(slots.fresh).ok().filter(|slot| u32::from(*slot) >> SLOTS_LOG == 0)?;
        slots.fresh += 1;
        Some(slot)
    }

    /// Adds to the current CPU's counter of a slot, modulo 2^64: it becomes negative if more references are dropped on
    /// a CPU than were taken there.
    #[inline]
    pub fn add(&self, slot: u16, amount: u64) {
        let (_, segments) = self.cpus.local();
        let slot = usize::from(slot);
        let Some(segment) = segments.get(slot / SEGMENT) else { return };
        let counters = segment.get_or_init(|| (0..SEGMENT).map(|_| AtomicU64::new(0)).collect());
        if let Some(counter) = counters.get(slot % SEGMENT) {
            // What was done before a reference was dropped happens before the count is collected.
            counter.fetch_add(amount, Ordering::Release);
        }
    }

    /// Returns a slot, and the sum of its counters. No thread uses it any more.
    pub fn release(&self, slot: u16) -> u64 {
        let at = usize::from(slot);
        let segments = self.cpus.iter().filter_map(|segments| segments.get(at / SEGMENT)?.get());
        let counters = segments.filter_map(|segment| segment.get(at % SEGMENT));
        let sum = counters.map(|counter| counter.swap(0, Ordering::Acquire)).fold(0, u64::wrapping_add);
        self.slots.lock().free.push(slot);
        sum
    }
}
