//! A number that all CPUs change and rarely anybody reads.

use crossbeam_utils::CachePadded;

use super::{PerCpu, available};
use crate::lock::{Mutex, Rank};
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// How much a CPU may hold back from [`Counter`]'s common part.
const BATCH: i64 = 1024;

/// A number that all CPUs change, such as the free blocks of a volume.
///
/// A CPU takes from and gives to a part of its own, and fetches from the common part in batches.
///
/// # Invariants
/// No part is ever negative: what [`try_sub`](Self::try_sub) granted was there. It refuses only if all parts together,
/// as gathered under a lock, are too few: what goes from one part to another goes under that lock, so that none is
/// missed on its way.
#[derive(Debug)]
pub struct Counter {
    common: CachePadded<AtomicI64>,
    parts: PerCpu<AtomicI64>,
    /// Held while something goes from one part to another.
    moving: Mutex<()>,
}

impl Counter {
    /// A counter that holds `value`.
    pub fn new(value: u64) -> Self {
        Self::with_parts(available(), value)
    }

    /// The same on so many CPUs.
    pub(super) fn with_parts(parts: usize, value: u64) -> Self {
        Self {
            common: CachePadded::new(AtomicI64::new(clamp(value))),
            parts: PerCpu::new(parts, |_| AtomicI64::new(0)),
            moving: Mutex::new(Rank::Leaf, ()),
        }
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        let (_, part) = self.parts.local();
        let now = part.fetch_add(clamp(count), Relaxed) + clamp(count);
        if now > 2 * BATCH {
            self.give_back(part, now - BATCH);
        }
    }

    /// A CPU's part is large: some of it becomes common.
    #[cold]
    fn give_back(&self, part: &AtomicI64, count: i64) {
        let _alone = self.moving.lock();
        if take(part, count) {
            self.common.fetch_add(count, Relaxed);
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
        self.fetch(part, wanted)
    }

    /// Takes from the common part, and a batch for this CPU; near zero, all parts are put together first.
    #[cold]
    fn fetch(&self, part: &AtomicI64, wanted: i64) -> bool {
        let _alone = self.moving.lock();
        if take(&self.common, wanted + BATCH) {
            part.fetch_add(BATCH, Relaxed);
            return true;
        }
        for part in self.parts.iter() {
            let found = part.swap(0, Relaxed);
            self.common.fetch_add(found, Relaxed);
        }
        take(&self.common, wanted)
    }

    /// The sum of all parts: exact while nobody changes it.
    pub fn sum(&self) -> u64 {
        let _alone = self.moving.lock();
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
