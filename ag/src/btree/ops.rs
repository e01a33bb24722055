//! BufferEdit tree at work: what differs between trees but is no business of their kind's layout.

use base::{AgNumber, Ino};
use format::geometry::Geometry;

use super::BtreeType;
use journal::engine::{Error, Transaction};

/// Whose tree it is: its blocks say so in their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtreeOwner {
    /// All blocks lie in this AG.
    Ag(AgNumber),
    /// Blocks lie anywhere.
    Inode(Ino),
}

/// Where a tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtreeRoot {
    /// In a block of its own, which a header names.
    Block {
        /// The block, as the tree's pointers are.
        block: u64,
        /// Levels, at least 1.
        levels: u32,
    },
    /// In the inode: see [`BtreeOps::inline`].
    Inline,
}

/// A tree at work. Implementations are small: references to geometry and in-core state, and the ids of the buffers
/// that hold the root and the counters.
pub trait BtreeOps {
    /// Its kind.
    type Type: BtreeType;

    /// The volume's shape.
    fn geometry(&self) -> &Geometry;

    /// Whose it is.
    fn owner(&self) -> BtreeOwner;

    /// Where it begins at this moment.
    fn root(&self, tx: &Transaction) -> BtreeRoot;

    /// Stores that it begins in another block, or has another height. Never called for an inline root.
    fn set_root(&mut self, tx: &mut Transaction, block: u64, levels: u32);

    /// The root in the inode's fork as it lies on disk: `BmapRoot`, then room for keys, then room for pointers, both
    /// as much as the fork's size gives.
    fn inline(&self) -> &[u8] {
        &[]
    }

    /// The same, to change it: the inode has to be logged.
    fn inline_mut(&mut self) -> &mut [u8] {
        &mut []
    }

    /// Takes a block for the tree and counts it, near another block of it where that can be chosen.
    ///
    /// # Errors
    /// No space: which cannot happen where blocks were reserved.
    fn alloc_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64, Error>;

    /// Gives a block back and uncounts it. The cursor invalidates its buffer afterwards.
    ///
    /// # Errors
    /// What freeing needs to read may be damaged.
    fn free_block(&mut self, tx: &mut Transaction, block: u64) -> Result<(), Error>;
}
