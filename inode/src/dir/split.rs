//! Splitting full leaves and nodes: the upper half moves to a new block on the right, and the parent gets an entry for
//! it. The root stays at its block: its contents move to a new block below it.

use base::FileBlock;
use format::dabtree::edit as node;
use format::dabtree::{MAX_DEPTH, NodeEntry};
use format::dir::DirSpace;
use format::dir::edit::leaf;
use format::dir::leaf::{LEAFN_MAGIC, LeafEntry};

use super::Directory;
use super::error::{Error, Result};
use super::fork::DirFork;
use super::node::{PathBlock, PathNodes, TreePath};

impl<F: DirFork> Directory<'_, F> {
    /// Allocates a block at the first hole of the leaf space.
    fn new_tree_block(&mut self) -> Result<(FileBlock, F::BlockId)> {
        let block = self.fork.first_hole(self.root())?;
        if DirSpace::of(block, self.geometry) != Some(DirSpace::Leaf) {
            return Err(Error::NoSpace { what: "a hash tree of a directory beyond 32 GiB" });
        }
        Ok((block, self.fork.allocate(block)?))
    }

    /// Splits a full leaf and inserts an entry before `slot`.
    pub(super) fn split_leaf(
        &mut self,
        path: &mut TreePath<F::BlockId>,
        slot: usize,
        new: LeafEntry,
    ) -> Result<()> {
        let (right_block, right) = self.new_tree_block()?;
        if path.nodes.is_empty() {
            path.leaf = self.push_leaf_root_down(path.leaf.id, &mut path.nodes)?;
        }
        let left = path.leaf;
        let count = self.leaf_shape(left.id)?.slots.count;
        // With the new entry, both halves have the same number of entries, or the left one has one more or less.
        let goes_left = slot <= count / 2;
        let kept = if count.is_multiple_of(2) || goes_left { count / 2 } else { count / 2 + 1 };
        let moved = self.view(left.id, |bytes| leaf::entries_from(bytes, kept))?;
        let at = self.fork.identity(right);
        self.edit(right, |open, geometry| {
            leaf::init(open, geometry, at, LEAFN_MAGIC)?;
            leaf::put_entries(open, &moved)
        })?;
        self.index_moved(&moved, right_block);
        self.edit(left.id, |open, _| leaf::truncate(open, kept))?;
        self.link_right(left, right_block, right)?;
        let (hash, pointer) = (new.hashval.get(), new.pointer());
        let (block, target, slot) = match goes_left {
            true => (left.block, left.id, slot),
            false => (right_block, right, slot.saturating_sub(kept)),
        };
        self.edit(target, |open, _| leaf::insert(open, hash, pointer, slot))?;
        self.index_moved(&[new], block);
        let last = |this: &Self, id| {
            let shape = this.leaf_shape(id)?;
            this.view(id, |bytes| Ok(shape.last_hash(bytes)?.unwrap_or(0)))
        };
        let (left_last, right_last) = (last(self, left.id)?, last(self, right)?);
        self.add_child(&mut path.nodes, left_last, right_last, right_block)
    }

    /// Inserts a new block into the sibling list, to the right of another.
    fn link_right(&mut self, left: PathBlock<F::BlockId>, block: FileBlock, id: F::BlockId) -> Result<()> {
        let next = self.view(left.id, node::forw)?;
        if let Some(next) = next {
            let next_id = self.read_tree_block(next)?;
            self.edit(next_id, |open, _| node::set_back(open, Some(block)))?;
        }
        self.edit(id, |open, _| {
            node::set_forw(open, next)?;
            node::set_back(open, Some(left.block))
        })?;
        self.edit(left.id, |open, _| node::set_forw(open, Some(block)))
    }

    /// Adds an entry for `child` to the last of `nodes`, after the child that the path follows, whose highest hash is
    /// now `left_last`.
    fn add_child(
        &mut self,
        nodes: &mut PathNodes<F::BlockId>,
        left_last: u32,
        last: u32,
        child: FileBlock,
    ) -> Result<()> {
        let Some(parent) = nodes.last().copied() else { return Ok(()) };
        self.edit(parent.id, |open, _| node::set_hash(open, parent.index, left_last).map(|_| ()))?;
        let shape = self.view(parent.id, node::NodeShape::of)?;
        let new = node::entry(last, child).map_err(|damage| self.damaged(damage))?;
        if shape.count < shape.most {
            self.edit(parent.id, |open, _| node::insert(open, parent.index + 1, new))?;
            // Only a change of the last child changes the hashes further up.
            let count = shape.count + 1;
            if parent.index + 2 == count
                && let Some((_, above)) = nodes.split_last()
            {
                self.fix_hashes(above, last)?;
            }
            return Ok(());
        }
        self.split_node(nodes, new)
    }

    /// Splits the last of `nodes`, which is full, and adds an entry after the child that the path follows.
    fn split_node(&mut self, nodes: &mut PathNodes<F::BlockId>, new: NodeEntry) -> Result<()> {
        let (right_block, right) = self.new_tree_block()?;
        if nodes.len() == 1 {
            self.push_node_root_down(nodes)?;
        }
        let Some(left) = nodes.pop() else { return Ok(()) };
        let level = self.view(left.id, node::NodeShape::of)?.level;
        let mut entries = self.view(left.id, |bytes| Ok(node::entries(bytes)?.to_vec()))?;
        entries.insert((left.index + 1).min(entries.len()), new);
        let (kept, moved) = entries.split_at(entries.len().div_ceil(2));
        let at = self.fork.identity(right);
        self.edit(right, |open, geometry| {
            node::init(open, geometry, at, level)?;
            node::put_entries(open, moved)
        })?;
        self.edit(left.id, |open, _| node::put_entries(open, kept))?;
        self.link_right(left, right_block, right)?;
        let last = |entries: &[NodeEntry]| entries.last().map_or(0, |entry| entry.hashval.get());
        self.add_child(nodes, last(kept), last(moved), right_block)
    }

    /// Moves the leaf at the root to a new block, which it returns; the root becomes a node above it.
    fn push_leaf_root_down(
        &mut self,
        root: F::BlockId,
        nodes: &mut PathNodes<F::BlockId>,
    ) -> Result<PathBlock<F::BlockId>> {
        let (block, id) = self.new_tree_block()?;
        let entries = self.view(root, |bytes| leaf::entries_from(bytes, 0))?;
        let at = self.fork.identity(id);
        self.edit(id, |open, geometry| {
            leaf::init(open, geometry, at, LEAFN_MAGIC)?;
            leaf::put_entries(open, &entries)
        })?;
        self.index_moved(&entries, block);
        let hash = entries.last().map_or(0, |entry| entry.hashval.get());
        nodes.push(self.make_node_root(root, 1, hash, block)?);
        Ok(PathBlock { block, id, index: 0 })
    }

    /// Moves the node at the root to a new block; the root becomes a node above it.
    fn push_node_root_down(&mut self, nodes: &mut PathNodes<F::BlockId>) -> Result<()> {
        let Some(root) = nodes.first().copied() else { return Ok(()) };
        let level = self.view(root.id, node::NodeShape::of)?.level;
        if level >= MAX_DEPTH {
            return Err(self.too_deep());
        }
        let (block, id) = self.new_tree_block()?;
        let entries = self.view(root.id, |bytes| Ok(node::entries(bytes)?.to_vec()))?;
        let at = self.fork.identity(id);
        self.edit(id, |open, geometry| {
            node::init(open, geometry, at, level)?;
            node::put_entries(open, &entries)
        })?;
        let hash = entries.last().map_or(0, |entry| entry.hashval.get());
        let raised = self.make_node_root(root.id, level + 1, hash, block)?;
        if let Some(first) = nodes.first_mut() {
            *first = PathBlock { block, id, ..root };
        }
        nodes.insert(0, raised);
        Ok(())
    }

    /// Makes the root block a node with one child.
    fn make_node_root(
        &mut self,
        root: F::BlockId,
        level: u16,
        hash: u32,
        child: FileBlock,
    ) -> Result<PathBlock<F::BlockId>> {
        let at = self.fork.identity(root);
        let entry = node::entry(hash, child).map_err(|damage| self.damaged(damage))?;
        self.edit(root, |open, geometry| {
            node::init(open, geometry, at, level)?;
            node::put_entries(open, &[entry])
        })?;
        Ok(PathBlock { block: self.root(), id: root, index: 0 })
    }
}
