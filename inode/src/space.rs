//! The interface of forks to the allocation groups. Tests implement it by a simple allocator.

use std::fmt::Debug;

pub use ag::inodes::{ChunkInodes, FreedInodes};
use base::{FsBlock, Ino};
use error::Result;
use format::extent::Extent;
use format::inode::ForkKind;
use journal::engine::Transaction;

/// The owner of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForkOwner {
    /// Inode number.
    pub ino: Ino,
    /// Fork.
    pub fork: ForkKind,
    /// The blocks hold the fork's extent btree, not what the fork maps.
    pub tree: bool,
}

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest {
    /// Allocate as close to this block as possible; otherwise in the inode's AG.
    pub near: Option<FsBlock>,
    /// Maximum number of blocks.
    pub max: u32,
    /// Minimum number of blocks, all in one extent.
    pub min: u32,
    /// Alignment of the first block within its AG, if possible.
    pub align: u32,
}

/// A run of blocks in one AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// First block.
    pub start: FsBlock,
    /// Number of blocks.
    pub count: u32,
}

/// The space of one transaction: the allocation groups, with the transaction's block reservation.
///
/// The allocator maintains the reverse mappings of btree blocks. Those of mapped blocks are changed by
/// [`mapped`](Self::mapped), [`unmapped`](Self::unmapped) and [`release`](Self::release), because they may need
/// deferred operations.
pub trait SpaceAllocator {
    /// Allocates blocks.
    ///
    /// # Errors
    /// [`error::Error::NoSpace`], with nothing changed.
    fn allocate(&mut self, tx: &mut Transaction, owner: ForkOwner, request: BlockRequest)
    -> Result<BlockRun>;

    /// Records that a fork maps these blocks, which were allocated for it.
    ///
    /// # Errors
    /// Damage; I/O errors.
    fn mapped(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()>;

    /// Records that these blocks of a fork changed between written and unwritten.
    ///
    /// # Errors
    /// Those of [`mapped`](Self::mapped).
    fn marked(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()>;

    /// Records that a fork does not map these blocks any more. They stay allocated, and are mapped elsewhere next.
    ///
    /// # Errors
    /// Those of [`mapped`](Self::mapped).
    fn unmapped(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<()>;

    /// Records that a fork does not map these blocks any more, and frees them; `shared` blocks lose one owner.
    ///
    /// # Errors
    /// Those of [`mapped`](Self::mapped).
    fn release(
        &mut self,
        tx: &mut Transaction,
        owner: ForkOwner,
        extent: &Extent,
        shared: bool,
    ) -> Result<()>;

    /// Sets up to `blocks` reserved blocks aside for a deferred operation; returns their number.
    fn promise(&mut self, blocks: u32) -> u32;

    /// Takes the claimed blocks of this change out of free space. A fork maps them next.
    ///
    /// # Errors
    /// Those of [`mapped`](Self::mapped).
    fn take_claimed(&mut self, tx: &mut Transaction) -> Result<()>;

    /// Frees a block of a fork's btree.
    ///
    /// # Errors
    /// Those of [`mapped`](Self::mapped).
    fn free_tree_block(&mut self, tx: &mut Transaction, owner: ForkOwner, block: FsBlock) -> Result<()>;
}

/// The allocation groups, as background inactivation uses them.
pub trait GroupOperations: Send + Sync + Debug {
    /// The space of a change that frees blocks. It may still allocate `blocks`, for btrees that split.
    ///
    /// # Errors
    /// [`error::Error::NoSpace`] if the blocks cannot be reserved.
    fn space(&self, blocks: u32) -> Result<Box<dyn SpaceAllocator + '_>>;

    /// The space of a deferred operation, with blocks that [`SpaceAllocator::promise`] has set aside.
    fn promised(&self, blocks: u32) -> Box<dyn SpaceAllocator + '_>;

    /// Frees inodes in the inode btrees: the first, and those after it in its chunk. Where the whole chunk is removed,
    /// its cluster buffers are invalidated.
    ///
    /// # Errors
    /// Damage; [`error::Error::NoSpace`], with nothing changed.
    fn free_inodes(&self, tx: &mut Transaction, inos: &[Ino]) -> Result<FreedInodes>;

    /// The inodes of the chunk with this inode number; `None` if no chunk has it. The chunk stays while the AGI is
    /// locked, which is until `tx` ends.
    ///
    /// # Errors
    /// Damage; I/O errors.
    fn chunk_inodes(&self, tx: &mut Transaction, ino: Ino) -> Result<Option<ChunkInodes>>;
}
