//! What a range of a file maps to.

use base::{FileBlock, FsBlock};

/// State of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingState {
    /// Not mapped. Reads as zeros.
    Hole,
    /// Mapped to blocks that were never written. Reads as zeros.
    Unwritten,
    /// Mapped to blocks with contents.
    Written,
}

/// The longest uniform range at the start of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First block of the file.
    pub offset: FileBlock,
    /// Length in blocks, at least 1.
    pub count: u64,
    /// State of all its blocks.
    pub state: MappingState,
    /// First block on the volume; meaningless for a hole.
    pub start: FsBlock,
    /// Whether the blocks are mapped a second time, by this file or another: they must not be written in place.
    pub shared: bool,
}

impl Mapping {
    /// Returns the block of the file after the last one.
    pub fn end(&self) -> FileBlock {
        FileBlock(self.offset.get() + self.count)
    }

    /// Returns whether writing a part changes the mapping of that part only, which splits records.
    pub fn is_split(&self) -> bool {
        self.state != MappingState::Hole && (self.shared || self.state == MappingState::Unwritten)
    }

    /// Returns whether a write goes to newly allocated blocks.
    pub fn needs_blocks(&self) -> bool {
        self.state == MappingState::Hole || self.shared
    }

    /// Returns the volume's block for a block of the file within this range.
    pub fn fs_block(&self, block: FileBlock) -> FsBlock {
        FsBlock(self.start.get() + (block.get() - self.offset.get()))
    }
}
