//! What the journal has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one volume's journal since it was opened, and some of its present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Transactions committed.
    pub commits: u64,
    /// Checkpoints pushed.
    pub pushes: u64,
    /// Log forces asked for.
    pub forces: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Flushes for the log's sake.
    pub flushes: u64,
    /// Items in the AIL now.
    pub ail_items: u64,
    /// Buffers written home.
    pub written_buffers: u64,
    /// How often a thread waited for log space.
    pub space_waits: u64,
    /// How often a change was held back before it began because the checkpoint was too large.
    pub throttled: u64,
}

/// Those that nobody else counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub forces: AtomicU64,
    pub written_buffers: AtomicU64,
    pub throttled: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Relaxed)
    }
}
