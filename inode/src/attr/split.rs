//! Splitting full leaves and nodes: the upper half moves to a new block on the right, and the parent gets an entry for
//! it. The root stays at its block: its contents move to a new block below it.
//!
//! An attribute takes up to 3/4 of a leaf, so it may fit neither half. Then the leaf is split at the attribute's place,
//! and the attribute gets a leaf of its own between the halves.

use error::Error;
use format::attr::edit::leaf as edit;
use format::dabtree::edit as node;
use format::dabtree::{MAX_DEPTH, NodeEntry};

use super::blocks::AttrBlock;
use super::node::{AttrPath, AttrPathBlock};
use super::{Attributes, Result};

/// The distribution of a leaf's attributes over two leaves, with or without the new attribute.
struct LeafSplit {
    items: Vec<edit::LeafAttr>,
    /// Index of the first attribute of the right leaf.
    cut: usize,
    has_new: bool,
}

fn size(items: &[edit::LeafAttr]) -> usize {
    items.iter().map(edit::LeafAttr::size).sum()
}

impl LeafSplit {
    /// The most even distribution; without the new attribute, where it fits neither leaf.
    fn of(mut items: Vec<edit::LeafAttr>, slot: usize, new: &edit::LeafAttr, capacity: usize) -> Self {
        items.insert(slot.min(items.len()), new.clone());
        let fits = |cut: &usize| {
            let (left, right) = items.split_at(*cut);
            size(left) <= capacity && size(right) <= capacity
        };
        let uneven = |cut: &usize| {
            let (left, right) = items.split_at(*cut);
            size(left).abs_diff(size(right))
        };
        if let Some(cut) = (1..items.len()).filter(fits).min_by_key(uneven) {
            return Self { items, cut, has_new: true };
        }
        items.remove(slot.min(items.len() - 1));
        Self { items, cut: slot, has_new: false }
    }
}

impl Attributes<'_> {
    /// Splits a full leaf in which a new attribute belongs before `slot`. Returns whether the new attribute was
    /// inserted; if not, the caller searches its place again.
    pub(super) fn split_leaf(
        &mut self,
        path: &mut AttrPath,
        slot: usize,
        new: &edit::LeafAttr,
    ) -> Result<bool> {
        let items = self.view(path.leaf.block, edit::attributes)?;
        let halves = LeafSplit::of(items, slot, new, edit::capacity(self.geometry()));
        if path.nodes.is_empty() {
            path.leaf = self.push_leaf_root_down(path.leaf.block, &mut path.nodes)?;
        }
        let right = self.allocate()?;
        let (left, (kept, moved)) = (path.leaf.block, halves.items.split_at(halves.cut));
        self.edit(right, |open, geometry| {
            edit::init(open, geometry, right.at)?;
            edit::put_attributes(open, geometry, moved)
        })?;
        self.edit(left, |open, geometry| edit::put_attributes(open, geometry, kept))?;
        self.link_right(left, right)?;
        let last = |items: &[edit::LeafAttr]| items.last().map_or(0, |item| item.hash);
        self.add_child(&mut path.nodes, last(kept), (last(moved), right))?;
        Ok(halves.has_new)
    }

    /// Inserts a new block into the sibling list, to the right of another.
    fn link_right(&mut self, left: AttrBlock, right: AttrBlock) -> Result<()> {
        let next = self.view(left, |bytes, _| node::forw(bytes))?;
        if let Some(next) = next {
            let next = self.read(next)?;
            self.edit(next, |open, _| node::set_back(open, Some(right.at.file_block)))?;
        }
        self.edit(right, |open, _| {
            node::set_forw(open, next)?;
            node::set_back(open, Some(left.at.file_block))
        })?;
        self.edit(left, |open, _| node::set_forw(open, Some(right.at.file_block)))
    }

    /// Adds an entry for `child` to the last of `nodes`, after the child that the path follows, whose highest hash is
    /// now `left_last`.
    fn add_child(
        &mut self,
        nodes: &mut Vec<AttrPathBlock>,
        left_last: u32,
        (last, child): (u32, AttrBlock),
    ) -> Result<()> {
        let Some(parent) = nodes.last().copied() else { return Ok(()) };
        self.edit(parent.block, |open, _| node::set_hash(open, parent.index, left_last).map(drop))?;
        let shape = self.view(parent.block, |bytes, _| node::NodeShape::of(bytes))?;
        let new = node::entry(last, child.at.file_block).map_err(|damage| self.damaged(damage))?;
        if shape.count == shape.most {
            return self.split_node(nodes, new);
        }
        self.edit(parent.block, |open, _| node::insert(open, parent.index + 1, new))?;
        // Only a change of the last child changes the hashes further up.
        match nodes.split_last() {
            Some((_, above)) if parent.index + 1 == shape.count => self.fix_hashes(above, last),
            _ => Ok(()),
        }
    }

    /// Splits the last of `nodes`, which is full, and adds an entry after the child that the path follows.
    fn split_node(&mut self, nodes: &mut Vec<AttrPathBlock>, new: NodeEntry) -> Result<()> {
        if nodes.len() == 1 {
            self.push_node_root_down(nodes)?;
        }
        let Some(left) = nodes.pop() else { return Ok(()) };
        let right = self.allocate()?;
        let level = self.view(left.block, |bytes, _| node::NodeShape::of(bytes))?.level;
        let mut entries = self.view(left.block, |bytes, _| Ok(node::entries(bytes)?.to_vec()))?;
        entries.insert((left.index + 1).min(entries.len()), new);
        let (kept, moved) = entries.split_at(entries.len().div_ceil(2));
        self.edit(right, |open, geometry| {
            node::init(open, geometry, right.at, level)?;
            node::put_entries(open, moved)
        })?;
        self.edit(left.block, |open, _| node::put_entries(open, kept))?;
        self.link_right(left.block, right)?;
        let last = |entries: &[NodeEntry]| entries.last().map_or(0, |entry| entry.hashval.get());
        self.add_child(nodes, last(kept), (last(moved), right))
    }

    /// Moves the leaf at the root to a new block, which it returns; the root becomes a node above it.
    fn push_leaf_root_down(
        &mut self,
        root: AttrBlock,
        nodes: &mut Vec<AttrPathBlock>,
    ) -> Result<AttrPathBlock> {
        let lower = self.allocate()?;
        let items = self.view(root, edit::attributes)?;
        self.edit(lower, |open, geometry| {
            edit::init(open, geometry, lower.at)?;
            edit::put_attributes(open, geometry, &items)
        })?;
        let hash = items.last().map_or(0, |item| item.hash);
        nodes.push(self.make_node_root(root, 1, hash, lower)?);
        Ok(AttrPathBlock { block: lower, index: 0 })
    }

    /// Moves the node at the root to a new block; the root becomes a node above it.
    fn push_node_root_down(&mut self, nodes: &mut Vec<AttrPathBlock>) -> Result<()> {
        let Some(root) = nodes.first().copied() else { return Ok(()) };
        let level = self.view(root.block, |bytes, _| node::NodeShape::of(bytes))?.level;
        if level >= MAX_DEPTH {
            return Err(Error::NoSpace { what: "another level of a tree of attributes" });
        }
        let lower = self.allocate()?;
        let entries = self.view(root.block, |bytes, _| Ok(node::entries(bytes)?.to_vec()))?;
        self.edit(lower, |open, geometry| {
            node::init(open, geometry, lower.at, level)?;
            node::put_entries(open, &entries)
        })?;
        let hash = entries.last().map_or(0, |entry| entry.hashval.get());
        let raised = self.make_node_root(root.block, level + 1, hash, lower)?;
        nodes.splice(0..1, [raised, AttrPathBlock { block: lower, index: root.index }]);
        Ok(())
    }

    /// Makes the root block a node with one child; its old contents are gone.
    fn make_node_root(
        &mut self,
        root: AttrBlock,
        level: u16,
        hash: u32,
        child: AttrBlock,
    ) -> Result<AttrPathBlock> {
        let entry = node::entry(hash, child.at.file_block).map_err(|damage| self.damaged(damage))?;
        self.edit(root, |open, geometry| {
            node::init(open, geometry, root.at, level)?;
            node::put_entries(open, &[entry])
        })?;
        Ok(AttrPathBlock { block: root, index: 0 })
    }
}
