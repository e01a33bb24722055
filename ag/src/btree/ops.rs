//! One btree instance: root, block allocation and freeing.

use base::{AgNumber, Ino};
use format::geometry::Geometry;

use super::BtreeType;
use error::Result;
use journal::engine::Transaction;

/// Owner of a btree; every block header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtreeOwner {
    /// A per-AG btree: all blocks lie in this AG.
    Ag(AgNumber),
    /// The bmbt of an inode: blocks may lie in any AG.
    Inode(Ino),
}

/// Root of a btree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtreeRoot {
    /// A block that a header names.
    Block {
        /// Block number, in the form of the tree's pointers.
        block: u64,
        /// Number of levels, at least 1.
        levels: u32,
    },
    /// In the inode's fork: see [`BtreeOps::inline`].
    Inline,
}

/// A btree instance. Implementations are small: references to geometry and in-core state, and the ids of the buffers
/// that hold the root and the counters.
pub trait BtreeOps {
    /// Btree type.
    type Type: BtreeType;

    /// Geometry of the volume.
    fn geometry(&self) -> &Geometry;

    /// Owner of the tree.
    fn owner(&self) -> BtreeOwner;

    /// Current root.
    fn root(&self, tx: &Transaction) -> BtreeRoot;

    /// Stores a new root block or height. Never called for an inline root.
    fn set_root(&mut self, tx: &mut Transaction, block: u64, levels: u32);

    /// The root in the inode's fork, as on disk: `BmapRoot`, then space for keys, then space for pointers, as much as
    /// the fork's size gives.
    fn inline(&self) -> &[u8] {
        &[]
    }

    /// The inline root, to change it. The implementation logs the inode.
    fn inline_mut(&mut self) -> &mut [u8] {
        &mut []
    }

    /// Allocates a block for the tree, near another block of the tree if possible, and counts it.
    ///
    /// # Errors
    /// No space. This cannot happen if blocks were reserved.
    fn alloc_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64>;

    /// Frees a block and uncounts it. The cursor invalidates its buffer afterwards.
    ///
    /// # Errors
    /// Damage in a structure that freeing reads.
    fn free_block(&mut self, tx: &mut Transaction, block: u64) -> Result<()>;
}
