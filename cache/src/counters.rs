//! What the cache did: totals since the start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::PlugCounts;

/// A total that rarely used paths add to.
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

/// Totals.
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
    pub paused: Total,
    pub paused_us: Total,
}

/// A look at what a cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of folios in memory now.
    pub memory_bytes: u64,
    /// Dirty bytes now, with those that are being written.
    pub dirty_bytes: u64,
    /// Reads that did not find all of a piece in memory.
    pub misses: u64,
    /// Batches of reads that the device got.
    pub reads: u64,
    /// Passes of writeback over several files.
    pub passes: u64,
    /// Calls that finished what was written.
    pub finishes: u64,
    /// Files that they finished.
    pub finished_files: u64,
    /// Folios that were dropped because memory was short.
    pub dropped: u64,
    /// Folios that were looked at for that.
    pub looked: u64,
    /// Of these, those that were dirty, and were left to the flusher: dropping writes nothing.
    pub dirty_met: u64,
    /// Pauses of writers.
    pub paused: u64,
    /// How long they were in all, in microseconds.
    pub paused_us: u64,
    /// Requests of writeback and what the plug made of them. All that the cache writes but for direct I/O.
    pub plug: PlugCounts,
}
