//! Joining small leaves and nodes with a sibling under the same parent, and collapsing a root with one child.
//!
//! A block is joined if it is less than 3/8 full and the joined block would be at most 3/4 full, so that the next
//! insertion does not split it again. The block at the lower address stays, which keeps the fork compact.

use base::FileBlock;
use error::Error;
use format::Damage;
use format::attr::edit::leaf as edit;
use format::dabtree::NodeEntry;
use format::dabtree::edit as node;

use super::blocks::AttrBlock;
use super::node::{AttrPath, AttrPathBlock};
use super::{Attributes, Result};

/// The contents of a leaf or a node.
enum AttrTreeEntries {
    Leaf(Vec<edit::LeafAttr>),
    Node(Vec<NodeEntry>),
}

impl AttrTreeEntries {
    fn last_hash(&self) -> Option<u32> {
        match self {
            Self::Leaf(items) => items.last().map(|item| item.hash),
            Self::Node(entries) => entries.last().map(|entry| entry.hashval.get()),
        }
    }

    fn append(&mut self, other: Self) -> bool {
        match (self, other) {
            (Self::Leaf(items), Self::Leaf(more)) => items.extend(more),
            (Self::Node(entries), Self::Node(more)) => entries.extend(more),
            _ => return false,
        }
        true
    }
}

impl Attributes<'_> {
    /// Joins a leaf from which an attribute was removed, if it has become small; then the nodes above it.
    pub(super) fn join_leaf(&mut self, path: AttrPath) -> Result<()> {
        let AttrPath { mut nodes, leaf } = path;
        let mut child = leaf.block;
        while !nodes.is_empty() {
            let (filled, capacity) = self.fill(child)?;
            if filled * 8 >= capacity * 3 || !self.join(&mut nodes, child)? {
                break;
            }
            match nodes.pop() {
                Some(parent) => child = parent.block,
                None => break,
            }
        }
        self.collapse_root()
    }

    /// Used and total capacity of a block: of a leaf in bytes, of a node in entries.
    fn fill(&self, block: AttrBlock) -> Result<(usize, usize)> {
        if self.is_node(block) {
            let shape = self.view(block, |bytes, _| node::NodeShape::of(bytes))?;
            return Ok((shape.count, shape.most));
        }
        Ok((self.view(block, edit::used)?, edit::capacity(self.geometry())))
    }

    fn entries(&self, block: AttrBlock) -> Result<AttrTreeEntries> {
        if self.is_node(block) {
            return self.view(block, |bytes, _| Ok(AttrTreeEntries::Node(node::entries(bytes)?.to_vec())));
        }
        self.view(block, edit::attributes).map(AttrTreeEntries::Leaf)
    }

    /// Joins a small child of the last of `nodes` with a sibling, or frees it if it is empty. Returns `false` where
    /// nothing changed. The last of `nodes` then points to the joined block.
    fn join(&mut self, nodes: &mut [AttrPathBlock], child: AttrBlock) -> Result<bool> {
        let Some(parent) = nodes.last().copied() else { return Ok(false) };
        let siblings = self.view(parent.block, |bytes, _| {
            let entries = node::entries(bytes)?;
            let at =
                |index: Option<usize>| index.and_then(|index| Some((index, entries.get(index)?.child())));
            Ok([at(parent.index.checked_sub(1)), at(Some(parent.index + 1))])
        })?;
        let (count, _) = self.fill(child)?;
        let mut candidates: Vec<(usize, FileBlock)> = siblings.into_iter().flatten().collect();
        if count == 0 && !candidates.is_empty() {
            return self.remove_empty_child(nodes, parent.index, child);
        }
        candidates.sort_by_key(|(_, block)| *block);
        for (index, at) in candidates {
            let sibling = self.read(at)?;
            if sibling.at == child.at {
                let damage = Damage::new("hash tree node", "before", "each child once", at);
                return Err(Error::damaged(parent.block.at.place(), damage));
            }
            let (other, capacity) = self.fill(sibling)?;
            if (count + other) * 4 > capacity * 3 {
                continue;
            }
            let (own, sibling) = (
                AttrPathBlock { block: child, index: parent.index },
                AttrPathBlock { block: sibling, index },
            );
            let (left, right) = if index < own.index { (sibling, own) } else { (own, sibling) };
            return self.merge(nodes, left, right);
        }
        Ok(false)
    }

    fn can_free_block(&self, block: AttrBlock) -> bool {
        let at = block.at.file_block;
        self.can_free(at, FileBlock(at.get() + 1))
    }

    /// Joins two siblings.
    fn merge(
        &mut self,
        nodes: &mut [AttrPathBlock],
        left: AttrPathBlock,
        right: AttrPathBlock,
    ) -> Result<bool> {
        let (kept, dropped) = if left.at() < right.at() { (left, right) } else { (right, left) };
        if !self.can_free_block(dropped.block) {
            return Ok(false);
        }
        let mut all = self.entries(left.block)?;
        if !all.append(self.entries(right.block)?) {
            let damage = Damage::new("hash tree node", "before", "children of one kind", right.at());
            return Err(Error::damaged(left.block.at.place(), damage));
        }
        self.edit(kept.block, |open, geometry| match &all {
            AttrTreeEntries::Leaf(items) => edit::put_attributes(open, geometry, items),
            AttrTreeEntries::Node(entries) => node::put_entries(open, entries),
        })?;
        self.unlink(nodes, dropped.index, dropped.block)?;
        let index = if dropped.index < kept.index { kept.index - 1 } else { kept.index };
        if let Some(parent) = nodes.last_mut() {
            parent.index = index;
        }
        if let Some(hash) = all.last_hash() {
            self.fix_hashes(nodes, hash)?;
            self.fix_parent_hashes(nodes)?;
        }
        Ok(true)
    }

    /// Frees an empty child that has siblings. It cannot stay: a leaf under a node is never empty.
    fn remove_empty_child(
        &mut self,
        nodes: &mut [AttrPathBlock],
        index: usize,
        dropped: AttrBlock,
    ) -> Result<bool> {
        if !self.can_free_block(dropped) {
            return Err(Error::NoSpace { what: "removing an attribute" });
        }
        self.unlink(nodes, index, dropped)?;
        self.fix_parent_hashes(nodes)?;
        Ok(true)
    }

    /// Removes a child from its parent and from the sibling list, and frees it.
    fn unlink(&mut self, nodes: &[AttrPathBlock], index: usize, block: AttrBlock) -> Result<()> {
        let (back, forw) = self.view(block, |bytes, _| Ok((node::back(bytes)?, node::forw(bytes)?)))?;
        if let Some(left) = back {
            let left = self.read(left)?;
            self.edit(left, |open, _| node::set_forw(open, forw))?;
        }
        if let Some(right) = forw {
            let right = self.read(right)?;
            self.edit(right, |open, _| node::set_back(open, back))?;
        }
        if let Some(parent) = nodes.last() {
            self.edit(parent.block, |open, _| node::remove(open, index))?;
        }
        self.free(block)
    }

    /// Updates the hashes above the last of `nodes`, after its last child has changed or gone.
    fn fix_parent_hashes(&mut self, nodes: &[AttrPathBlock]) -> Result<()> {
        let Some((parent, above)) = nodes.split_last() else { return Ok(()) };
        let last = self.view(parent.block, |bytes, _| {
            Ok(node::entries(bytes)?.last().map(|entry| entry.hashval.get()))
        })?;
        match last {
            Some(hash) => self.fix_hashes(above, hash),
            None => Ok(()),
        }
    }

    /// While the root is a node with one child, moves the child's contents into the root.
    fn collapse_root(&mut self) -> Result<()> {
        loop {
            let root = self.root()?;
            if !self.is_node(root) {
                return Ok(());
            }
            let only = self.view(root, |bytes, _| match node::entries(bytes)? {
                [only] => Ok(Some(only.child())),
                _ => Ok(None),
            })?;
            let Some(at) = only else { return Ok(()) };
            let child = self.read(at)?;
            let above = self.view(root, |bytes, _| node::NodeShape::of(bytes))?.level;
            let level = match self.is_node(child) {
                true => self.view(child, |bytes, _| node::NodeShape::of(bytes))?.level,
                false => 0,
            };
            if child.at == root.at || level + 1 != above {
                let damage = Damage::new("hash tree node", "level", above.saturating_sub(1), level);
                return Err(Error::damaged(child.at.place(), damage));
            }
            if !self.can_free_block(child) {
                return Ok(());
            }
            match self.entries(child)? {
                AttrTreeEntries::Leaf(items) => self.edit(root, |open, geometry| {
                    edit::init(open, geometry, root.at)?;
                    edit::put_attributes(open, geometry, &items)
                })?,
                AttrTreeEntries::Node(entries) => self.edit(root, |open, geometry| {
                    node::init(open, geometry, root.at, level)?;
                    node::put_entries(open, &entries)
                })?,
            }
            self.free(child)?;
        }
    }
}
