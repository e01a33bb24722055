//! The memory of a volume's caches.

use std::sync::Arc;

use base::memory::{Budget, Share};

use crate::{Options, Volume};

/// The shares of a volume's caches in a memory budget.
#[derive(Debug)]
pub(crate) struct Memory {
    pub budget: Arc<Budget>,
    /// Metadata buffers and the log.
    pub buffers: Arc<Share>,
    /// Contents of files.
    pub contents: Arc<Share>,
    /// Inodes and names.
    pub inodes: Arc<Share>,
}

impl Memory {
    /// A quarter of the volume's part for buffers, a half for contents, and a quarter for inodes.
    pub fn of(options: &Options) -> Self {
        let budget = options.memory.clone().unwrap_or_else(Budget::of_process);
        let share = |weight| Share::new(&budget, weight);
        Self { buffers: share(1), contents: share(2), inodes: share(1), budget }
    }
}

/// Memory of the caches of a volume, in bytes, and of all volumes with the same budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// The budget.
    pub budget: u64,
    /// What all caches with this budget may hold now: less than the budget while memory is short.
    pub limit: u64,
    /// What all caches with this budget hold.
    pub used: u64,
    /// Metadata buffers of the volume, and changes on their way to the log.
    pub buffers: u64,
    /// Contents of files of the volume.
    pub contents: u64,
    /// Inodes and names of the volume, and the open files of a mount.
    pub inodes: u64,
    /// Number of removed files that wait to be freed, and stay in memory until then.
    pub files_to_free: u64,
}

impl Volume {
    /// The share of the budget in which inodes and names are counted. A program that keeps open files for others, as
    /// the server of a mount, counts their memory there.
    pub fn inode_memory(&self) -> &Share {
        &self.memory.inodes
    }

    pub(crate) fn memory_statistics(&self) -> MemoryStatistics {
        let Memory { budget, buffers, contents, inodes } = &self.memory;
        MemoryStatistics {
            budget: budget.bytes(),
            limit: budget.limit(),
            used: budget.used(),
            buffers: buffers.exact(),
            contents: contents.exact(),
            inodes: inodes.exact(),
            files_to_free: self.inode_cache.shared().inactive.backlog() as u64,
        }
    }
}
