//! A counter that all CPUs change and that is rarely read.

use crossbeam_utils::CachePadded;

use super::{PerCpu, available};
use crate::lock::{Mutex, Rank};
use crate::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The maximum share of [`Counter`] held by one CPU.
const BATCH: i64 = 1024;

/// A counter that all CPUs change, such as the free blocks of a volume.
///
/// Each CPU adds to and subtracts from its own share, and exchanges batches with a global share.
///
/// # Invariants
/// No share is ever negative: what [`try_sub`](Self::try_sub) granted existed. It refuses only if the sum of all
/// shares, computed under a lock, is too small; transfers between shares take the same lock, so that none is missed.
#[derive(Debug)]
pub struct Counter {
    common: CachePadded<AtomicI64>,
    parts: PerCpu<AtomicI64>,
    /// Held during transfers between shares.
    moving: Mutex<()>,
}

impl Counter {
    /// A counter that holds `value`.
    pub fn new(value: u64) -> Self {
        Self::with_parts(available(), value)
    }

    /// A counter with this number of per-CPU shares.
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

    /// Moves a part of a large per-CPU share to the global share.
    #[cold]
    fn give_back(&self, part: &AtomicI64, count: i64) {
        let _alone = self.moving.lock();
        if take(part, count) {
            self.common.fetch_add(count, Relaxed);
        }
    }

    /// Subtracts `count` if the counter is at least that large.
    #[inline]
    pub fn try_sub(&self, count: u64) -> bool {
        let (_, part) = self.parts.local();
        let wanted = clamp(count);
        if take(part, wanted) {
            return true;
        }
        self.fetch(part, wanted)
    }

    /// Takes `count` and a batch for this CPU from the global share; near zero it first collects all shares.
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

    /// The sum of all shares: exact in the absence of concurrent changes.
    pub fn sum(&self) -> u64 {
        let _alone = self.moving.lock();
        let parts: i64 = self.parts.iter().map(|part| part.load(Relaxed)).sum();
        u64::try_from(self.common.load(Relaxed) + parts).unwrap_or(0)
    }
}

/// Subtracts `wanted` from `part` unless the result would be negative.
fn take(part: &AtomicI64, wanted: i64) -> bool {
    part.fetch_update(Relaxed, Relaxed, |have| (have >= wanted).then_some(have - wanted)).is_ok()
}

/// No counter of a volume comes near this limit.
fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 4)
}
