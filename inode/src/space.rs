//! What inodes need of the allocation groups: a narrow interface, so that forks are tested on a simple allocator, too.

use std::fmt::Debug;

pub use ag::inodes::{ChunkInodes, FreedInodes};
use base::{FsBlock, Ino};
use format::extent::Extent;
use format::inode::ForkKind;
use journal::engine::{Error, Transaction};

/// Whose blocks they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForkOwner {
    /// The inode.
    pub ino: Ino,
    /// Its fork.
    pub fork: ForkKind,
    /// They hold the fork's tree, not what the fork maps.
    pub tree: bool,
}

/// Which blocks are wanted.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest {
    /// As near to this block as possible; else in the inode's group.
    pub near: Option<FsBlock>,
    /// As many blocks as possible, up to this.
    pub most: u32,
    /// And not fewer than this, in one piece.
    pub least: u32,
    /// The first block's number within its group is a multiple of this, where possible.
    pub align: u32,
}

/// A run of blocks of one allocation group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first.
    pub start: FsBlock,
    /// How many.
    pub count: u32,
}

/// Where one change takes blocks from and gives them back to: the groups, with the change's block reservation.
///
/// Reverse mappings of tree blocks are the allocator's business. Those of what a fork maps are told by
/// [`mapped`](Self::mapped), [`unmapped`](Self::unmapped) and [`release`](Self::release), because they may be changed
/// by operations of their own.
pub trait SpaceAllocator {
    /// Takes blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with nothing changed.
    fn allocate(
        &mut self,
        tx: &mut Transaction,
        owner: ForkOwner,
        want: BlockRequest,
    ) -> Result<BlockRun, Error>;

    /// A fork now maps these blocks, which were allocated for it.
    ///
    /// # Errors
    /// What must be read to note it may be damaged.
    fn mapped(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<(), Error>;

    /// These blocks of a fork changed between written and unwritten.
    ///
    /// # Errors
    /// As [`mapped`](Self::mapped).
    fn marked(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<(), Error>;

    /// A fork maps these blocks no more. They stay allocated: another range is about to map them.
    ///
    /// # Errors
    /// As [`mapped`](Self::mapped).
    fn unmapped(&mut self, tx: &mut Transaction, owner: ForkOwner, extent: &Extent) -> Result<(), Error>;

    /// A fork maps these blocks no more: they are to be freed, or, where files may share them, one owner less.
    ///
    /// # Errors
    /// As [`mapped`](Self::mapped).
    fn release(
        &mut self,
        tx: &mut Transaction,
        owner: ForkOwner,
        extent: &Extent,
        shared: bool,
    ) -> Result<(), Error>;

    /// Takes up to so many blocks out of what the change has reserved, for an operation that comes later; how many.
    fn promise(&mut self, blocks: u32) -> u32;

    /// Takes the blocks out of free space that were claimed for this change and that a fork is about to map.
    ///
    /// # Errors
    /// As [`mapped`](Self::mapped).
    fn take_claimed(&mut self, tx: &mut Transaction) -> Result<(), Error>;

    /// Gives a block of a fork's tree back.
    ///
    /// # Errors
    /// As [`mapped`](Self::mapped).
    fn free_tree_block(
        &mut self,
        tx: &mut Transaction,
        owner: ForkOwner,
        block: FsBlock,
    ) -> Result<(), Error>;
}

/// The allocation groups, as inactivation in the background needs them.
pub trait GroupOperations: Send + Sync + Debug {
    /// For a change that only gives back. `blocks` may be taken all the same, for trees that split.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where so many blocks cannot be reserved.
    fn space(&self, blocks: u32) -> Result<Box<dyn SpaceAllocator + '_>, Error>;

    /// The same for an operation that comes later: with blocks that [`SpaceAllocator::promise`] has set aside.
    fn promised(&self, blocks: u32) -> Box<dyn SpaceAllocator + '_>;

    /// Frees inodes in the inode trees: the first, and those behind it that are of its chunk. Where the whole chunk
    /// goes, its clusters' buffers are invalidated, and the chunk's inodes are told.
    ///
    /// # Errors
    /// Damage in the trees; [`Error::NoSpace`], with nothing changed.
    fn free_inodes(&self, tx: &mut Transaction, inos: &[Ino]) -> Result<FreedInodes, Error>;

    /// The inodes of the chunk that a number lies in; `None` where it lies in none. The AGI stays locked in `tx`, and
    /// as long as it does, so the chunk stays.
    ///
    /// # Errors
    /// Damage in the trees; what reading meets.
    fn chunk_inodes(&self, tx: &mut Transaction, ino: Ino) -> Result<Option<ChunkInodes>, Error>;
}
