//! The storage of a directory: its fork, and the transaction that changes it.

use base::{FileBlock, Ino};
use format::dabtree::{DaNode, DaTree, NODE_MAGIC};
use format::dir::data::DataBlock;
use format::dir::free::FreeBlock;
use format::dir::leaf::DirLeaf;
use format::edit::BlockMut;
use format::{Damage, ForkBlock, Geometry, dabtree};

use super::Result;
use super::collision_index::CollisionIndex;

/// The type of block that may be at a place in the fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirBlockType {
    /// A data block, with or without the leaf entries of block format.
    Data,
    /// A leaf of leaf or node format, or a node.
    LeafOrNode,
    /// A free block.
    Free,
}

impl DirBlockType {
    /// Verifies every field of a block that was read from the device. Later changes rely on that.
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

/// The data fork of one directory, within one transaction. A directory block is addressed by the first of its file
/// blocks.
pub trait DirFork {
    /// A block that has joined the transaction.
    type BlockId: Copy + Eq;
    /// The bytes of a block in the transaction, which logs what changes.
    type Buffer: BlockMut;

    /// Inode number of the directory.
    fn ino(&self) -> Ino;

    /// Contents of a shortform directory; `None` in other formats.
    fn local(&self) -> Option<&[u8]>;
    /// Bytes available for a shortform directory in the inode.
    fn local_capacity(&self) -> usize;
    /// Stores a shortform directory of at most [`local_capacity`](Self::local_capacity) bytes in the inode, and sets
    /// the size. The fork must not map blocks any more.
    fn set_local(&mut self, contents: &[u8]) -> Result<()>;
    /// Drops the shortform contents: the fork becomes an empty list of extents, the size 0.
    fn leave_local(&mut self) -> Result<()>;

    /// Size of the directory in bytes.
    fn size(&self) -> u64;
    /// Sets the size of the directory.
    fn set_size(&mut self, size: u64);

    /// The file block after the last mapped block; 0 if none is mapped.
    fn end(&mut self) -> Result<FileBlock>;
    /// The first mapped block at or after `from`.
    fn next_mapped(&mut self, from: FileBlock) -> Result<Option<FileBlock>>;
    /// The file block after the last mapped block below `below`; 0 if there is none.
    fn mapped_end(&mut self, below: FileBlock) -> Result<FileBlock>;
    /// The first directory block at or after `from` that is not mapped.
    fn first_hole(&mut self, from: FileBlock) -> Result<FileBlock>;

    /// Reads a block and joins it to the transaction. A block that comes from the device is verified by
    /// [`DirBlockType::verify`]. A block that is not mapped is reported as damage, because another block pointed to it.
    fn read(&mut self, at: FileBlock, kind: DirBlockType) -> Result<Self::BlockId>;
    /// Checks that `blocks` directory blocks can be allocated. Called before the first change of an operation.
    ///
    /// # Errors
    /// [`Error::NoSpace`](super::Error::NoSpace).
    fn ensure_blocks(&mut self, blocks: u32) -> Result<()>;
    /// Allocates and maps a block. Its bytes are zero and not logged yet.
    fn allocate(&mut self, at: FileBlock) -> Result<Self::BlockId>;
    /// Whether unmapping and freeing a block stays within the blocks reserved for the extent map, after `earlier`
    /// others that the same change frees.
    fn can_free(&mut self, at: FileBlock, earlier: usize) -> Result<bool>;
    /// Unmaps and frees a block. Does not change the size.
    fn free(&mut self, at: FileBlock, id: Self::BlockId) -> Result<()>;

    /// The owner, file block and disk address of a block.
    fn identity(&self, id: Self::BlockId) -> ForkBlock;
    /// The bytes of a block.
    fn bytes(&self, id: Self::BlockId) -> &[u8];
    /// Mutable access to a block's bytes.
    fn block_mut(&mut self, id: Self::BlockId) -> &mut Self::Buffer;
    /// Unlocks a block that was not changed.
    fn release(&mut self, id: Self::BlockId);
    /// The index of names that share a hash, kept in the inode's state.
    fn collision_index(&mut self) -> &mut Option<Box<CollisionIndex>>;
    /// Number that changes when the transaction has released blocks on its own; block ids from before are invalid then.
    fn epoch(&self) -> u32;
}
