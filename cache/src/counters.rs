//! Counters since the start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::PlugCounts;

use crate::latency::Latencies;

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
    pub dropped_when_clean: Total,
    pub written_by_reclaim: Total,
    pub throttled: Total,
    pub throttled_us: Total,
    pub pauses: Latencies,
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
    /// Dirty folios among these.
    pub dirty_met: u64,
    /// Those of them that were dropped when their writeback ended.
    pub dropped_when_clean: u64,
    /// Bytes that reclaim wrote: 0, unless its policy is another one than never to write.
    pub written_by_reclaim: u64,
    /// Times that a writer was throttled.
    pub throttled: u64,
    /// Total length of these in microseconds.
    pub throttled_us: u64,
    /// Percentiles of these in microseconds, exact to a quarter: half of them were not longer,
    pub throttled_us_p50: u64,
    /// 99 % of them,
    pub throttled_us_p99: u64,
    /// and 99.9 %.
    pub throttled_us_p999: u64,
    /// Write requests of writeback and of bulk writers, and the writes that plugs merged them into.
    pub plug: PlugCounts,
}
