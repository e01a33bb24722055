//! Space, inodes, and what the journal did.

use std::sync::Arc;

use ag::inodes::state::InodeCounts;
use journal::engine::LogStatistics;

use crate::Volume;

/// What is there and what is free, and what was done since the volume was opened.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the volume, without the log's if that is its own device's.
    pub blocks: u64,
    /// Free blocks, as the superblock counts them.
    pub blocks_free: u64,
    /// Of these, blocks that a change could take now: without what is set aside for trees, and what contents that are
    /// not written yet have reserved.
    pub blocks_available: u64,
    /// Inodes that exist, and free ones among them.
    pub inodes: InodeCounts,
    /// Removed files that could not be freed: they stay on their lists of unlinked inodes, and take space.
    pub unfreed: usize,
    /// Why the volume was shut down; `None` while it works.
    pub shut_down: Option<Arc<str>>,
    /// The journal's counters.
    pub journal: LogStatistics,
    /// What keeping contents of files in memory and writing them back did.
    pub contents: cache::Statistics,
}

impl Volume {
    /// Sums over all CPUs: exact while nothing is changed.
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
        }
    }
}
