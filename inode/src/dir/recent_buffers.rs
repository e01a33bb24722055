//! Recently used buffers of a directory, found by file block: a hit needs no search of the extent list or the buffer
//! cache.
//!
//! # Invariants
//! The entries are valid while the fork's extents do not change: a change of the extent list drops the cache.
//! References are weak, so the cache keeps no buffer in memory.

use std::sync::{Arc, Weak};

use base::FileBlock;
use journal::engine::Buffer;

/// Two each of the blocks that an operation uses: root, leaf, data block, free block.
const SLOTS: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct RecentBuffers {
    blocks: [FileBlock; SLOTS],
    buffers: [Weak<Buffer>; SLOTS],
    /// The slot that the next new block replaces.
    next: usize,
}

impl Default for RecentBuffers {
    fn default() -> Self {
        Self { blocks: [FileBlock(u64::MAX); SLOTS], buffers: [const { Weak::new() }; SLOTS], next: 0 }
    }
}

impl RecentBuffers {
    /// The cached buffer of a block.
    pub fn get(&self, block: FileBlock) -> Option<Arc<Buffer>> {
        let slot = self.blocks.iter().position(|known| *known == block)?;
        self.buffers.get(slot)?.upgrade()
    }

    /// Adds the buffer of a block.
    pub fn insert(&mut self, block: FileBlock, buffer: &Arc<Buffer>) {
        let known = self.blocks.iter().position(|known| *known == block);
        let slot = known.unwrap_or_else(|| {
            self.next = (self.next + 1) % SLOTS;
            self.next
        });
        if let (Some(key), Some(value)) = (self.blocks.get_mut(slot), self.buffers.get_mut(slot)) {
            (*key, *value) = (block, Arc::downgrade(buffer));
        }
    }
}
