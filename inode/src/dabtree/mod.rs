//! The hash tree of directories in node format and of attributes in blocks: leaves, sorted by hash, under nodes. Linux
//! calls it the directory/attribute btree.
//!
//! | part | subject |
//! |---|---|
//! | [`HashTree`] | what a tree needs of its fork and its leaves; walks; updates of hashes |
//! | [`TreeFork`] | the fork of a tree within a transaction |
//! | [`split`], [`join`] | splits and joins of blocks; growth and collapse of the root |
//!
//! # Invariants
//! - The root stays at its block, at every height.
//! - The hash of a node entry is the highest hash below that child, stale leaf entries included.
//! - Walks descend strictly, so that a damaged tree cannot loop. The caller bounds the number of leaves that it visits.

pub(crate) mod join;
pub(crate) mod split;
mod tree_fork;

use base::FileBlock;
use error::{Error, Result};
use format::dabtree::edit as node;
use format::dabtree::{self, MAX_DEPTH, NODE_MAGIC, NodeEntry};
use format::edit::BlockMut;
use format::{Damage, ForkBlock, Geometry, ensure};
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
pub(crate) trait HashTree {
    /// A block that has joined the transaction.
    type Id: Copy + Eq;
    /// The bytes of a block in the transaction, which logs what changes.
    type Buffer: BlockMut;
    /// An entry of a leaf.
    type LeafEntry;

    /// Whether a leaf without entries may stay under a node.
    const KEEPS_EMPTY_LEAVES: bool;

    fn geometry<'g>(&self) -> &'g Geometry
    where
        Self: 'g;
    /// The block of the root, or of the only leaf.
    fn root(&self) -> FileBlock;
    /// Reads a block that a parent or sibling points to.
    fn read_tree_block(&mut self, block: FileBlock) -> Result<Self::Id>;
    /// Allocates a block. Its bytes are zero and not logged yet.
    fn new_tree_block(&mut self) -> Result<PathBlock<Self::Id>>;
    /// Whether unmapping and freeing a block stays within what is reserved, after `earlier` others that the same change
    /// frees.
    fn can_free_tree_block(&mut self, block: FileBlock, earlier: usize) -> Result<bool>;
    fn free_tree_block(&mut self, block: FileBlock, id: Self::Id) -> Result<()>;
    /// The owner, file block and disk address of a block.
    fn identity(&self, id: Self::Id) -> ForkBlock;
    fn bytes(&self, id: Self::Id) -> &[u8];
    fn block_mut(&mut self, id: Self::Id) -> &mut Self::Buffer;
    /// Entries of leaves have moved to another block.
    fn entries_moved(&mut self, entries: &[Self::LeafEntry], to: FileBlock);

    /// Checks that a block that is not a node is a leaf of a tree.
    fn verify_leaf(bytes: &[u8], geometry: &Geometry) -> Checked<()>;
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

    /// Reads the bytes of a block. Damage is reported with the location of the block.
    #[inline]
    fn view<T>(&self, id: Self::Id, work: impl FnOnce(&[u8]) -> Checked<T>) -> Result<T> {
        work(self.bytes(id)).map_err(|damage| self.damaged_at(id, damage))
    }

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

    #[cold]
    fn damaged_at(&self, id: Self::Id, damage: Damage) -> Error {
        Error::damaged(self.identity(id).place(), damage)
    }

    #[inline]
    fn is_node(&self, id: Self::Id) -> bool {
        dabtree::magic(self.bytes(id)) == Some(NODE_MAGIC)
    }

    /// Descends from a block at `level` (0: leaf; `None`: the root, at any level), following the child that `pick`
    /// selects in each node.
    fn walk_down(
        &mut self,
        nodes: &mut PathNodes<Self::Id>,
        mut block: FileBlock,
        mut id: Self::Id,
        mut level: Option<u16>,
        pick: impl Fn(&[NodeEntry]) -> usize,
    ) -> Result<PathBlock<Self::Id>> {
        loop {
            if !self.is_node(id) {
                let geometry = self.geometry();
                self.view(id, |bytes| {
                    let fits = level.is_none_or(|level| level == 0);
                    ensure!(fits, "hash tree node", "level", "a leaf where its level says", "another");
                    Self::verify_leaf(bytes, geometry)
                })?;
                return Ok(PathBlock { block, id, index: 0 });
            }
            let (step, child, below) = self.view(id, |bytes| {
                let found = node::NodeShape::of(bytes)?.level;
                let expected = level.unwrap_or(found);
                let fits = found == expected && found <= MAX_DEPTH && found > 0;
                ensure!(fits, "hash tree node", "level", expected, found);
                let entries = node::entries(bytes)?;
                let index = pick(entries).min(entries.len().saturating_sub(1));
                let child = entries.get(index).map(NodeEntry::child);
                let missing = || Damage::new("hash tree node", "count", "at least 1", entries.len());
                Ok((PathBlock { block, id, index }, child.ok_or_else(missing)?, found - 1))
            })?;
            nodes.push(step);
            (block, level) = (child, Some(below));
            id = self.read_tree_block(block)?;
        }
    }

    /// Descends to the first leaf that may contain a hash; to the last leaf where all hashes are lower.
    fn descend(&mut self, root: Self::Id, hash: u32) -> Result<TreePath<Self::Id>> {
        let mut nodes = PathNodes::new();
        let pick = |entries: &[NodeEntry]| entries.partition_point(|entry| entry.hashval.get() < hash);
        let leaf = self.walk_down(&mut nodes, self.root(), root, None, pick)?;
        Ok(TreePath { nodes, leaf })
    }

    /// Moves the path to the next leaf; `false` at the last one.
    fn advance(&mut self, path: &mut TreePath<Self::Id>) -> Result<bool> {
        let mut depth = path.nodes.len();
        while let Some(up) = depth.checked_sub(1) {
            let Some(step) = path.nodes.get_mut(up) else { return Ok(false) };
            let id = step.id;
            let next = step.index + 1;
            let (level, child) = self.view(id, |bytes| {
                let child = node::entries(bytes)?.get(next).map(NodeEntry::child);
                Ok((node::NodeShape::of(bytes)?.level, child))
            })?;
            if let Some(child) = child {
                step.index = next;
                path.nodes.truncate(up + 1);
                let id = self.read_tree_block(child)?;
                path.leaf = self.walk_down(&mut path.nodes, child, id, Some(level - 1), |_| 0)?;
                return Ok(true);
            }
            depth = up;
        }
        Ok(false)
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
