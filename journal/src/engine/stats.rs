//! LogCounters of the journal.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// LogCounters of one volume's journal since it was opened, and some of its present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Committed transactions.
    pub commits: u64,
    /// Pushed checkpoints.
    pub pushes: u64,
    /// Log forces.
    pub forces: u64,
    /// Log records written.
    pub records: u64,
    /// Bytes of log records written.
    pub bytes: u64,
    /// Flushes issued for the log.
    pub flushes: u64,
    /// Items in the AIL.
    pub ail_items: u64,
    /// Metadata buffers written back.
    pub written_buffers: u64,
    /// How often a thread waited for log space.
    pub space_waits: u64,
    /// How often a transaction waited before it began because the checkpoint was too large.
    pub throttled: u64,
}

/// LogCounters that no other part keeps.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    pub forces: AtomicU64,
    pub written_buffers: AtomicU64,
    pub throttled: AtomicU64,
}

impl LogCounters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Relaxed)
    }
}
