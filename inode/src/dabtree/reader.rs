//! Walks in a hash tree.

use base::FileBlock;
use error::{Error, Result};
use format::dabtree::edit as node;
use format::dabtree::{self, MAX_DEPTH, NODE_MAGIC, NodeEntry};
use format::{Damage, ForkBlock, Geometry, ensure};

use super::{Checked, PathBlock, PathNodes, TreePath};

/// A hash tree that is read: within a transaction, or in a read section without locks.
pub(crate) trait TreeReader {
    /// A block that was read.
    type Id: Copy;

    fn geometry<'g>(&self) -> &'g Geometry
    where
        Self: 'g;
    /// The block of the root, or of the only leaf.
    fn root(&self) -> FileBlock;
    /// Reads a block that a parent or sibling points to.
    fn read_tree_block(&mut self, block: FileBlock) -> Result<Self::Id>;
    /// The owner, file block and disk address of a block.
    fn identity(&self, id: Self::Id) -> ForkBlock;
    fn bytes(&self, id: Self::Id) -> &[u8];
    /// Checks that a block that is not a node is a leaf of a tree.
    fn verify_leaf(bytes: &[u8], geometry: &Geometry) -> Checked<()>;

    /// Reads the bytes of a block. Damage is reported with the location of the block.
    #[inline]
    fn view<T>(&self, id: Self::Id, work: impl FnOnce(&[u8]) -> Checked<T>) -> Result<T> {
        work(self.bytes(id)).map_err(|damage| self.damaged_at(id, damage))
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
}
