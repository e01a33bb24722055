//! Joining small leaves and nodes with a sibling under the same parent, and collapsing a root with one child.
//!
//! A block is joined if it is less than 3/8 full and the joined block would be at most 3/4 full, so that the next
//! insertion does not split it again. The block at the lower address stays, which keeps the leaf space compact.

use base::FileBlock;
use format::Damage;
use format::dabtree::edit as node;
use format::dabtree::{self, NODE_MAGIC, NodeEntry};
use format::dir::edit::leaf;
use format::dir::leaf::{LEAFN_MAGIC, LeafEntry};

use super::Directory;
use super::error::Result;
use super::fork::DirFork;
use super::node::{PathBlock, TreePath};

/// The entries of a leaf, without stale ones, or of a node.
enum TreeEntries {
    Leaf(Vec<LeafEntry>),
    Node(Vec<NodeEntry>),
}

impl TreeEntries {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Node(entries) => entries.len(),
        }
    }

    fn last_hash(&self) -> Option<u32> {
        match self {
            Self::Leaf(entries) => entries.last().map(|entry| entry.hashval.get()),
            Self::Node(entries) => entries.last().map(|entry| entry.hashval.get()),
        }
    }

    fn append(&mut self, other: Self) -> bool {
        match (self, other) {
            (Self::Leaf(entries), Self::Leaf(more)) => entries.extend(more),
            (Self::Node(entries), Self::Node(more)) => entries.extend(more),
            _ => return false,
        }
        true
    }
}

impl<F: DirFork> Directory<'_, F> {
    /// Joins a leaf from which an entry was removed, if it has become small; then the nodes above it.
    pub(super) fn join_leaf(&mut self, path: TreePath<F::BlockId>) -> Result<()> {
        let TreePath { mut nodes, leaf } = path;
        let mut child = leaf;
        while !nodes.is_empty() {
            if !self.is_small(child.id)? || !self.join(&mut nodes, child)? {
                break;
            }
            match nodes.pop() {
                Some(parent) => child = parent,
                None => break,
            }
        }
        self.collapse_root()
    }

    /// Entries of a block without stale ones, and its capacity.
    fn fill(&self, id: F::BlockId) -> Result<(usize, usize)> {
        if dabtree::magic(self.fork.bytes(id)) == Some(NODE_MAGIC) {
            let shape = self.view(id, node::NodeShape::of)?;
            return Ok((shape.count, shape.most));
        }
        Ok((self.leaf_shape(id)?.live(), leaf::max_entries(self.geometry)))
    }

    fn is_small(&self, id: F::BlockId) -> Result<bool> {
        let (count, capacity) = self.fill(id)?;
        Ok(count * 8 < capacity * 3)
    }

    fn entries(&self, id: F::BlockId) -> Result<TreeEntries> {
        if dabtree::magic(self.fork.bytes(id)) == Some(NODE_MAGIC) {
            return self.view(id, |bytes| Ok(TreeEntries::Node(node::entries(bytes)?.to_vec())));
        }
        let shape = self.leaf_shape(id)?;
        self.view(id, |bytes| Ok(TreeEntries::Leaf(shape.slots.compacted(bytes, None)?)))
    }

    /// Joins a small child of the last of `nodes` with a sibling, or frees it if it is empty. Returns `false` where
    /// nothing changed. The last of `nodes` then points to the joined block.
    fn join(&mut self, nodes: &mut [PathBlock<F::BlockId>], child: PathBlock<F::BlockId>) -> Result<bool> {
        let Some(parent) = nodes.last().copied() else { return Ok(false) };
        let siblings = self.view(parent.id, |bytes| {
            let entries = node::entries(bytes)?;
            let at =
                |index: Option<usize>| index.and_then(|index| Some((index, entries.get(index)?.child())));
            Ok([at(parent.index.checked_sub(1)), at(Some(parent.index + 1))])
        })?;
        let count = self.fill(child.id)?.0;
        if count == 0 {
            return self.remove_empty_child(nodes, PathBlock { index: parent.index, ..child });
        }
        let mut candidates: Vec<(usize, FileBlock)> = siblings.into_iter().flatten().collect();
        candidates.sort_by_key(|(_, block)| *block);
        for (index, block) in candidates {
            let id = self.read_tree_block(block)?;
            if id == child.id {
                let damage = Damage::new("hash tree node", "before", "each child once", block);
                return Err(self.damaged_at(parent.id, damage));
            }
            let (other, capacity) = self.fill(id)?;
            if (count + other) * 4 > capacity * 3 {
                continue;
            }
            let sibling = PathBlock { block, id, index };
            let own = PathBlock { index: parent.index, ..child };
            let (left, right) = if index < own.index { (sibling, own) } else { (own, sibling) };
            return self.merge(nodes, left, right);
        }
        Ok(false)
    }

    /// Joins two siblings.
    fn merge(
        &mut self,
        nodes: &mut [PathBlock<F::BlockId>],
        left: PathBlock<F::BlockId>,
        right: PathBlock<F::BlockId>,
    ) -> Result<bool> {
        let (kept, dropped) = if left.block < right.block { (left, right) } else { (right, left) };
        if !self.fork.can_free(dropped.block)? {
            return Ok(false);
        }
        let mut all = self.entries(left.id)?;
        if !all.append(self.entries(right.id)?) {
            let damage = Damage::new("hash tree node", "before", "children of one kind", right.block);
            return Err(self.damaged_at(left.id, damage));
        }
        self.edit(kept.id, |open, _| match &all {
            TreeEntries::Leaf(entries) => leaf::put_entries(open, entries),
            TreeEntries::Node(entries) => node::put_entries(open, entries),
        })?;
        if let TreeEntries::Leaf(entries) = &all {
            self.index_moved(entries, kept.block);
        }
        self.unlink(nodes, dropped)?;
        let index = if dropped.index < kept.index { kept.index - 1 } else { kept.index };
        if let Some(parent) = nodes.last_mut() {
            parent.index = index;
        }
        if let Some(hash) = all.last_hash().filter(|_| all.len() > 0) {
            self.fix_hashes(nodes, hash)?;
            self.fix_parent_hashes(nodes)?;
        }
        Ok(true)
    }

    /// Frees a child without entries.
    fn remove_empty_child(
        &mut self,
        nodes: &mut [PathBlock<F::BlockId>],
        dropped: PathBlock<F::BlockId>,
    ) -> Result<bool> {
        if !self.fork.can_free(dropped.block)? {
            return Ok(false);
        }
        self.unlink(nodes, dropped)?;
        self.fix_parent_hashes(nodes)?;
        Ok(true)
    }

    /// Removes a child from its parent and from the sibling list, and frees it.
    fn unlink(
        &mut self,
        nodes: &[PathBlock<F::BlockId>],
        PathBlock { block, id, index }: PathBlock<F::BlockId>,
    ) -> Result<()> {
        let (back, forw) = self.view(id, |bytes| Ok((node::back(bytes)?, node::forw(bytes)?)))?;
        if let Some(left) = back {
            let left = self.read_tree_block(left)?;
            self.edit(left, |open, _| node::set_forw(open, forw))?;
        }
        if let Some(right) = forw {
            let right = self.read_tree_block(right)?;
            self.edit(right, |open, _| node::set_back(open, back))?;
        }
        if let Some(parent) = nodes.last() {
            self.edit(parent.id, |open, _| node::remove(open, index))?;
        }
        self.fork.free(block, id)
    }

    /// Updates the hashes above the last of `nodes`, after its last child has changed or gone.
    fn fix_parent_hashes(&mut self, nodes: &[PathBlock<F::BlockId>]) -> Result<()> {
        let Some((parent, above)) = nodes.split_last() else { return Ok(()) };
        let last =
            self.view(parent.id, |bytes| Ok(node::entries(bytes)?.last().map(|entry| entry.hashval.get())))?;
        match last {
            Some(hash) => self.fix_hashes(above, hash),
            None => Ok(()),
        }
    }

    /// While the root is a node with one child, moves the child's contents into the root.
    fn collapse_root(&mut self) -> Result<()> {
        let root_block = self.root();
        loop {
            let root = self.read_tree_block(root_block)?;
            if dabtree::magic(self.fork.bytes(root)) != Some(NODE_MAGIC) {
                return Ok(());
            }
            let only = self.view(root, |bytes| match node::entries(bytes)? {
                [only] => Ok(Some(only.child())),
                _ => Ok(None),
            })?;
            let Some(block) = only else { return Ok(()) };
            let id = self.read_tree_block(block)?;
            let above = self.view(root, node::NodeShape::of)?.level;
            let level = if dabtree::magic(self.fork.bytes(id)) == Some(NODE_MAGIC) {
                self.view(id, node::NodeShape::of)?.level
            } else {
                0
            };
            if id == root || level + 1 != above {
                let damage = Damage::new("hash tree node", "level", above.saturating_sub(1), level);
                return Err(self.damaged_at(id, damage));
            }
            if !self.fork.can_free(block)? {
                return Ok(());
            }
            let at = self.fork.identity(root);
            match self.entries(id)? {
                TreeEntries::Leaf(entries) => {
                    self.edit(root, |open, geometry| {
                        leaf::init(open, geometry, at, LEAFN_MAGIC)?;
                        leaf::put_entries(open, &entries)
                    })?;
                    self.index_moved(&entries, root_block);
                }
                TreeEntries::Node(entries) => self.edit(root, |open, geometry| {
                    node::init(open, geometry, at, level)?;
                    node::put_entries(open, &entries)
                })?,
            }
            self.fork.free(block, id)?;
        }
    }
}
