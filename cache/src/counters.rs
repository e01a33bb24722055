//! Counters since the start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::PlugCounts;

/// A counter of a rarely used path.
#[derive(Debug, Default)]
pub(crate) struct Total(AtomicU64);

impl Total {
    pub fn add(&self) {
        self.add_many(1);
    }

    pub fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub misses: Total,
    pub reads: Total,
    pub passes: Total,
    pub finishes: Total,
    pub finished_files: Total,
    pub dropped: Total,
    pub looked: Total,
    pub dirty_met: Total,
    pub throttled: Total,
    pub throttled_us: Total,
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of folios in memory now, and of what describes them.
    pub memory_bytes: u64,
    /// Bytes that are dirty or in writeback now.
    pub dirty_bytes: u64,
    /// Reads of a folio with bytes not in memory.
    pub misses: u64,
    /// Read batches of the device.
    pub reads: u64,
    /// Writeback passes.
    pub passes: u64,
    /// Calls that finished writes.
    pub finishes: u64,
    /// Files finished by these.
    pub finished_files: u64,
    /// Folios dropped by reclaim.
    pub dropped: u64,
    /// Folios examined by reclaim.
    pub looked: u64,
    /// Dirty folios among these. They are left to the flusher.
    pub dirty_met: u64,
    /// Times that a writer was throttled.
    pub throttled: u64,
    /// Total length of these in microseconds.
    pub throttled_us: u64,
    /// Write requests of writeback and of bulk writers, and the writes that plugs merged them into.
    pub plug: PlugCounts,
}
