//! What a directory needs of the fork that holds it and of the transaction that changes it.

use base::{FileBlock, Ino};
use format::dabtree::{DaNode, DaTree, NODE_MAGIC};
use format::dir::data::DataBlock;
use format::dir::free::FreeBlock;
use format::dir::leaf::DirLeaf;
use format::edit::BlockMut;
use format::{Damage, ForkBlock, Geometry, dabtree};

use super::collision_index::CollisionIndex;
use super::error::Result;

/// Which kinds of block are acceptable at a place of the fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirBlockType {
    /// TreeEntries, with or without the leaf of a one-block directory.
    Data,
    /// A leaf of either kind, or a node.
    LeafOrNode,
    /// A free block.
    Free,
}

impl DirBlockType {
    /// Verifies a block that was read from the device, completely: who changes it later relies on that.
    pub fn verify(self, bytes: &[u8], geometry: &Geometry, at: ForkBlock) -> std::result::Result<(), Damage> {
        match self {
            Self::Data => DataBlock::verify(bytes, geometry, at)?.audit(),
            Self::LeafOrNode if dabtree::magic(bytes) == Some(NODE_MAGIC) => {
                DaNode::verify(bytes, geometry, DaTree::Dir, at, None)?.audit()
            }
            Self::LeafOrNode => DirLeaf::verify(bytes, geometry, at)?.audit(),
            Self::Free => FreeBlock::verify(bytes, geometry, at)?.audit(),
        }
    }
}

/// The fork of one directory, within one transaction. Blocks are directory blocks, and are named by the first of their
/// logical blocks.
pub trait DirFork {
    /// A block in the transaction.
    type BlockId: Copy + Eq;
    /// Its bytes, to be changed and logged.
    type Edit<'b>: BlockMut
    where
        Self: 'b;

    /// The directory.
    fn ino(&self) -> Ino;

    /// The directory's contents, where they lie in the inode.
    fn local(&self) -> Option<&[u8]>;
    /// Bytes that the inode has for contents.
    fn local_capacity(&self) -> usize;
    /// Puts the contents, at most [`local_capacity`](Self::local_capacity), into the inode and sets the size to their
    /// length. A fork with blocks has had them freed.
    fn set_local(&mut self, contents: &[u8]) -> Result<()>;
    /// Makes the fork one of extents, without any, and the size 0.
    fn leave_local(&mut self) -> Result<()>;

    /// The inode's size.
    fn size(&self) -> u64;
    /// Sets it.
    fn set_size(&mut self, size: u64);

    /// The logical block behind the last that is mapped; 0 where there is none.
    fn end(&self) -> FileBlock;
    /// The first block at or behind `from` that is mapped.
    fn next_mapped(&mut self, from: FileBlock) -> Result<Option<FileBlock>>;
    /// The logical block behind the last that is mapped in front of `below`; 0 where there is none.
    fn mapped_end(&mut self, below: FileBlock) -> Result<FileBlock>;
    /// The first block at or behind `from` that is not mapped.
    fn first_hole(&mut self, from: FileBlock) -> Result<FileBlock>;

    /// Brings a block into the transaction; [`DirBlockType::verify`] is asked where it comes from the device. A block
    /// that is not mapped is damage: something pointed to it.
    fn read(&mut self, at: FileBlock, kind: DirBlockType) -> Result<Self::BlockId>;
    /// Refuses, with [`Error::NoSpace`](super::Error::NoSpace), where so many blocks cannot be allocated for sure:
    /// asked before the first change of an operation.
    fn ensure_blocks(&mut self, blocks: u32) -> Result<()>;
    /// Allocates and maps a block: all zeros, nothing of it logged.
    fn allocate(&mut self, at: FileBlock) -> Result<Self::BlockId>;
    /// Whether a block can be unmapped and freed without blocks that nobody reserved.
    fn can_free(&mut self, at: FileBlock) -> Result<bool>;
    /// Unmaps and frees a block. The size stays.
    fn free(&mut self, at: FileBlock, id: Self::BlockId) -> Result<()>;

    /// Who a block says it is.
    fn identity(&self, id: Self::BlockId) -> ForkBlock;
    /// Its bytes.
    fn bytes(&self, id: Self::BlockId) -> &[u8];
    /// The same, to be changed.
    fn block(&mut self, id: Self::BlockId) -> Self::Edit<'_>;
    /// Lets a block go that was not changed.
    fn release(&mut self, id: Self::BlockId);
    /// The index of names that share a hash, which is kept with the directory's inode.
    fn collision_index(&mut self) -> &mut Option<Box<CollisionIndex>>;
    /// Changes when the transaction let blocks go by itself.
    fn epoch(&self) -> u32;
}
