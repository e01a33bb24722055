//! The hash tree of directories in node format and of attributes in blocks: leaves, sorted by hash, under nodes. Linux
//! calls it the directory/attribute btree.
//!
//! | part | subject |
//! |---|---|
//! | [`TreeReader`] | what a walk needs of a tree; walks |
//! | [`HashTree`] | what a change needs of the fork and of the leaves; updates of hashes |
//! | [`TreeFork`] | the fork of a tree within a transaction |
//! | [`split`], [`join`] | splits and joins of blocks; growth and collapse of the root |
//!
//! # Invariants
//! - The root stays at its block, at every height.
//! - The hash of a node entry is the highest hash below that child, stale leaf entries included.
//! - Walks descend strictly, so that a damaged tree cannot loop. The caller bounds the number of leaves that it visits.

pub(crate) mod join;
mod reader;
pub(crate) mod split;
mod tree_fork;

use base::FileBlock;
use error::Result;
use format::dabtree::NodeEntry;
use format::dabtree::edit as node;
use format::edit::BlockMut;
use format::{Damage, ForkBlock, Geometry};
pub(crate) use reader::TreeReader;
use smallvec::SmallVec;
pub(crate) use tree_fork::TreeFork;

/// Result of reading or changing the bytes of a block.
pub(crate) type Checked<T> = std::result::Result<T, Damage>;

/// A block of the tree on the path from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathBlock<Id> {
    pub block: FileBlock,
    pub id: Id,
    /// In a node: the index of the child that the path follows.
    pub index: usize,
}

/// The nodes of a path, root first. Two levels of nodes address more than a million entries.
pub(crate) type PathNodes<Id> = SmallVec<[PathBlock<Id>; 2]>;

/// The path from the root to a leaf.
#[derive(Clone, Debug)]
pub(crate) struct TreePath<Id> {
    pub nodes: PathNodes<Id>,
    pub leaf: PathBlock<Id>,
}

/// A hash tree within one transaction. Implementations supply the storage of blocks and the format of leaves.
pub(crate) trait HashTree: TreeReader<Id: Eq> {
    /// The bytes of a block in the transaction, which logs what changes.
    type Buffer: BlockMut;
    /// An entry of a leaf.
    type LeafEntry;

    /// Whether a leaf without entries may stay under a node.
    const KEEPS_EMPTY_LEAVES: bool;

    /// Allocates a block. Its bytes are zero and not logged yet.
    fn new_tree_block(&mut self) -> Result<PathBlock<Self::Id>>;
    /// Whether unmapping and freeing a block stays within what is reserved, after `earlier` others that the same change
    /// frees.
    fn can_free_tree_block(&mut self, block: FileBlock, earlier: usize) -> Result<bool>;
    fn free_tree_block(&mut self, block: FileBlock, id: Self::Id) -> Result<()>;
    fn block_mut(&mut self, id: Self::Id) -> &mut Self::Buffer;
    /// Entries of leaves have moved to another block.
    fn entries_moved(&mut self, entries: &[Self::LeafEntry], to: FileBlock);

    /// The used and the whole capacity of a leaf.
    fn leaf_fill(bytes: &[u8], geometry: &Geometry) -> Checked<(usize, usize)>;
    /// The highest hash of a leaf; `None` if it is empty.
    fn last_leaf_hash(bytes: &[u8], geometry: &Geometry) -> Checked<Option<u32>>;
    /// The entries of a leaf, without stale ones.
    fn leaf_entries(bytes: &[u8], geometry: &Geometry) -> Checked<Vec<Self::LeafEntry>>;
    fn entry_hash(entry: &Self::LeafEntry) -> u32;
    /// Initializes an empty leaf.
    fn init_leaf(leaf: &mut Self::Buffer, geometry: &Geometry, at: ForkBlock) -> Checked<()>;
    /// Replaces all entries of a leaf.
    fn put_leaf(leaf: &mut Self::Buffer, geometry: &Geometry, entries: &[Self::LeafEntry]) -> Checked<()>;

    /// Changes the bytes of a block. Damage is reported with the location of the block.
    #[inline]
    fn edit<T>(
        &mut self,
        id: Self::Id,
        change: impl FnOnce(&mut Self::Buffer, &Geometry) -> Checked<T>,
    ) -> Result<T> {
        let geometry = self.geometry();
        let result = change(self.block_mut(id), geometry);
        result.map_err(|damage| self.damaged_at(id, damage))
    }

    /// Updates the nodes above a leaf with the leaf's highest hash.
    fn fix_leaf_hash(&mut self, path: &TreePath<Self::Id>) -> Result<()> {
        let geometry = self.geometry();
        match self.view(path.leaf.id, |bytes| Self::last_leaf_hash(bytes, geometry))? {
            Some(hash) => self.fix_hashes(&path.nodes, hash),
            None => Ok(()),
        }
    }

    /// Sets the hash of the child that the path follows, from the last node upwards, until the child is not the last
    /// one of its node.
    fn fix_hashes(&mut self, nodes: &[PathBlock<Self::Id>], hash: u32) -> Result<()> {
        for step in nodes.iter().rev() {
            let changed = self.edit(step.id, |block, _| node::set_hash(block, step.index, hash))?;
            let count = self.view(step.id, node::NodeShape::of)?.count;
            if !changed || step.index + 1 != count {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn last_hash(entries: &[NodeEntry]) -> u32 {
    entries.last().map_or(0, |entry| entry.hashval.get())
}
