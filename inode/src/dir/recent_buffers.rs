//! Buffers of a directory that were used lately: found again without its extents and without the cache's index.
//!
//! # Invariants
//! Holds as long as the fork's extents are as they were: whoever changes these forgets it. It keeps no buffer in
//! memory.

use std::sync::{Arc, Weak};

use base::FileBlock;
use journal::engine::Buffer;

/// A root, a leaf, a block with room, a free block; and the same once more.
const PLACES: usize = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RecentBuffers {
    blocks: [FileBlock; PLACES],
    buffers: [Weak<Buffer>; PLACES],
    /// Which place is the next to be taken.
    next: usize,
}

impl Default for RecentBuffers {
    fn default() -> Self {
        Self { blocks: [FileBlock(u64::MAX); PLACES], buffers: [const { Weak::new() }; PLACES], next: 0 }
    }
}

impl RecentBuffers {
    /// The buffer of a block, if it is known.
    pub fn get(&self, block: FileBlock) -> Option<Arc<Buffer>> {
        let place = self.blocks.iter().position(|known| *known == block)?;
        self.buffers.get(place)?.upgrade()
    }

    /// Notes the buffer of a block.
    pub fn note(&mut self, block: FileBlock, buffer: &Arc<Buffer>) {
        let known = self.blocks.iter().position(|known| *known == block);
        let place = known.unwrap_or_else(|| {
            self.next = (self.next + 1) % PLACES;
            self.next
        });
        if let (Some(key), Some(value)) = (self.blocks.get_mut(place), self.buffers.get_mut(place)) {
            (*key, *value) = (block, Arc::downgrade(buffer));
        }
    }
}
