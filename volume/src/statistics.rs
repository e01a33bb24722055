//! Counters of an open volume.

use std::sync::Arc;

use ag::inodes::state::InodeCounts;
use journal::engine::LogStatistics;

use crate::{MemoryStatistics, Volume};

/// Counters of space and inodes, and of operations since the volume was opened.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Block size in bytes.
    pub block_size: u32,
    /// Size of the volume in blocks, without an external log.
    pub blocks: u64,
    /// Free blocks, as the superblock counts them.
    pub blocks_free: u64,
    /// Free blocks without those reserved for btrees and for dirty data.
    pub blocks_available: u64,
    /// Allocated and free inodes.
    pub inodes: InodeCounts,
    /// Number of removed files that could not be freed: they stay on their unlinked lists, and their blocks stay in
    /// use.
    pub unfreed: usize,
    /// Reason of a shutdown; `None` if the volume is not shut down.
    pub shut_down: Option<Arc<str>>,
    /// Counters of the journal.
    pub journal: LogStatistics,
    /// Counters of the file cache and of writeback.
    pub contents: cache::Statistics,
    /// Memory of the caches.
    pub memory: MemoryStatistics,
}

/// Space and files as `statfs(2)` reports them on a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Block size in bytes.
    pub block_size: u32,
    /// Size of the volume in blocks, without its log.
    pub blocks: u64,
    /// Free blocks without those reserved for btrees and for dirty data.
    pub blocks_available: u64,
    /// Number of files that the volume can hold: inodes are created in free blocks.
    pub files: u64,
    /// Number of files that can be created.
    pub files_free: u64,
}

impl Volume {
    /// Space and files as `statfs(2)` reports them.
    pub fn usage(&self) -> Usage {
        let inodes = self.groups.inodes().counts();
        let blocks_available = self.groups.available();
        let log = self.geometry.log_start.map_or(0, |_| self.geometry.log_blocks);
        let used = inodes.allocated.saturating_sub(inodes.free);
        let files = inodes.files(&self.geometry, blocks_available);
        Usage {
            block_size: self.geometry.block_size,
            blocks: self.geometry.blocks().saturating_sub(log.into()),
            blocks_available,
            files,
            files_free: files.saturating_sub(used),
        }
    }

    /// Returns the counters. They are per CPU, and their sum is exact only while the volume is not changed.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            block_size: self.geometry.block_size,
            blocks: self.geometry.blocks(),
            blocks_free: self.groups.free_blocks(),
            blocks_available: self.groups.available(),
            inodes: self.groups.inodes().counts(),
            unfreed: self.inode_cache.shared().inactive.unfreed(),
            shut_down: self.log.shut_down_cause(),
            journal: self.log.statistics(),
            contents: self.cache.statistics(),
            memory: self.memory_statistics(),
        }
    }
}
