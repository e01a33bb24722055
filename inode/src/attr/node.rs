//! Attributes in leaf and node format: a hash tree of leaves, with nodes above them if there are several. Lookup,
//! insertion, removal.

use base::FileBlock;
use error::Error;
use format::attr::edit::leaf as edit;
use format::attr::leaf::AttrLeaf;
use format::attr::{Attr, AttrValue};
use format::dabtree::edit as node;
use format::dabtree::{MAX_DEPTH, NodeEntry};
use format::inode::ForkKind;
use format::{Damage, ensure};

use super::blocks::AttrBlock;
use super::{AttrInfo, AttrKey, Attributes, NewAttrValue, Result, is_inline};
use crate::space::BlockRun;

/// A block on the path from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttrPathBlock {
    pub block: AttrBlock,
    /// In a node: the index of the child that the path follows.
    pub index: usize,
}

impl AttrPathBlock {
    pub fn at(&self) -> FileBlock {
        self.block.at.file_block
    }
}

/// The path from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct AttrPath {
    /// Root first; empty for a single leaf.
    pub nodes: Vec<AttrPathBlock>,
    pub leaf: AttrPathBlock,
}

/// An attribute and its place in the tree.
#[derive(Clone, Debug)]
pub(super) struct FoundAttr {
    pub path: AttrPath,
    /// Index of its entry in the leaf.
    pub slot: usize,
    pub incomplete: bool,
    /// First block and length of a remote value.
    pub remote: Option<(FileBlock, u32)>,
}

impl Attributes<'_> {
    /// Reads the root.
    pub(super) fn root(&mut self) -> Result<AttrBlock> {
        self.read(FileBlock(0))
    }

    /// Descends from a block at `level` (0: leaf; `None`: the root, at any level), following the child that `pick`
    /// selects in each node.
    fn walk_down(
        &mut self,
        nodes: &mut Vec<AttrPathBlock>,
        mut at: FileBlock,
        mut level: Option<u16>,
        pick: impl Fn(&[NodeEntry]) -> usize,
    ) -> Result<AttrPathBlock> {
        loop {
            let block = self.read(at)?;
            if !self.is_node(block) {
                if level.is_some_and(|level| level != 0) {
                    let damage =
                        Damage::new("hash tree node", "level", "a leaf where its level says", "another");
                    return Err(Error::damaged(block.at.place(), damage));
                }
                self.view(block, |bytes, geometry| AttrLeaf::of(bytes, geometry).map(drop))?;
                return Ok(AttrPathBlock { block, index: 0 });
            }
            let (index, child, below) = self.view(block, |bytes, _| {
                let found = node::NodeShape::of(bytes)?.level;
                let expected = level.unwrap_or(found);
                let fits = found == expected && found <= MAX_DEPTH && found > 0;
                ensure!(fits, "hash tree node", "level", expected, found);
                let entries = node::entries(bytes)?;
                let index = pick(entries).min(entries.len().saturating_sub(1));
                let child = entries.get(index).map(NodeEntry::child);
                let missing = || Damage::new("hash tree node", "count", "at least 1", entries.len());
                Ok((index, child.ok_or_else(missing)?, found - 1))
            })?;
            nodes.push(AttrPathBlock { block, index });
            (at, level) = (child, Some(below));
        }
    }

    /// Descends to the first leaf that may contain a hash; to the last leaf where all hashes are lower.
    pub(super) fn descend(&mut self, hash: u32) -> Result<AttrPath> {
        let mut nodes = Vec::with_capacity(usize::from(MAX_DEPTH));
        let pick = |entries: &[NodeEntry]| entries.partition_point(|entry| entry.hashval.get() < hash);
        let leaf = self.walk_down(&mut nodes, FileBlock(0), None, pick)?;
        Ok(AttrPath { nodes, leaf })
    }

    /// Moves the path to the next leaf; `false` at the last one. Unlocks unchanged blocks that it leaves.
    fn advance(&mut self, path: &mut AttrPath) -> Result<bool> {
        let mut depth = path.nodes.len();
        while let Some(up) = depth.checked_sub(1) {
            let Some(step) = path.nodes.get_mut(up) else { return Ok(false) };
            let block = step.block;
            let next = step.index + 1;
            let (level, child) = self.view(block, |bytes, _| {
                let child = node::entries(bytes)?.get(next).map(NodeEntry::child);
                Ok((node::NodeShape::of(bytes)?.level, child))
            })?;
            if let Some(child) = child {
                step.index = next;
                self.tx.release(path.leaf.block.buffer);
                path.nodes.truncate(up + 1);
                path.leaf = self.walk_down(&mut path.nodes, child, Some(level - 1), |_| 0)?;
                return Ok(true);
            }
            depth = up;
        }
        Ok(false)
    }

    /// The most leaves that the fork can have. The bound ends walks in a tree with a loop.
    fn max_leaves(&self) -> u64 {
        self.extents().as_slice().iter().map(|extent| extent.count).sum()
    }

    #[cold]
    fn tree_loop(&self) -> Error {
        self.damaged(Damage::new("hash tree node", "before", "each leaf once", "some again"))
    }

    /// Looks up an attribute; with `any`, incomplete ones too.
    pub(super) fn node_find(&mut self, key: &AttrKey<'_>, any: bool) -> Result<Option<FoundAttr>> {
        let hash = key.hash(self.geometry());
        let mut path = self.descend(hash)?;
        for _ in 0..self.max_leaves() {
            let (found, beyond) = self.view(path.leaf.block, |bytes, geometry| {
                let leaf = AttrLeaf::of(bytes, geometry)?;
                let first = leaf.entries.partition_point(|entry| entry.hashval.get() < hash);
                for (slot, entry) in leaf.entries.iter().enumerate().skip(first) {
                    if entry.hashval.get() != hash {
                        return Ok((None, false));
                    }
                    let attr = leaf.attr(entry)?;
                    if key.is(&attr) && (any || !attr.incomplete) {
                        return Ok((Some((slot, attr.incomplete, remote(&attr))), false));
                    }
                }
                Ok((None, true))
            })?;
            if let Some((slot, incomplete, remote)) = found {
                return Ok(Some(FoundAttr { path, slot, incomplete, remote }));
            }
            if !beyond || !self.advance(&mut path)? {
                return Ok(None);
            }
        }
        Err(self.tree_loop())
    }

    /// A value in the leaf.
    pub(super) fn value_at(&self, hit: &FoundAttr) -> Result<Vec<u8>> {
        self.view(hit.path.leaf.block, |bytes, geometry| {
            let leaf = AttrLeaf::of(bytes, geometry)?;
            let attr = leaf.entries.get(hit.slot).map(|entry| leaf.attr(entry)).transpose()?;
            Ok(match attr.map(|attr| attr.value) {
                Some(AttrValue::Inline(value)) => value.to_vec(),
                _ => Vec::new(),
            })
        })
    }

    pub(super) fn node_list(&mut self) -> Result<Vec<AttrInfo>> {
        let mut all = Vec::new();
        let mut path = self.descend(0)?;
        for _ in 0..self.max_leaves() {
            self.view(path.leaf.block, |bytes, geometry| {
                for attr in AttrLeaf::of(bytes, geometry)?.attrs() {
                    let attr = attr?;
                    if !attr.incomplete {
                        all.push(AttrInfo::of(&attr));
                    }
                }
                Ok(())
            })?;
            if !self.advance(&mut path)? {
                return Ok(all);
            }
        }
        Err(self.tree_loop())
    }

    /// Replaces a value in the leaf, at the same index. Returns `false`, with nothing changed, if the new value does
    /// not fit.
    pub(super) fn replace_inline_value(
        &mut self,
        hit: &FoundAttr,
        key: &AttrKey<'_>,
        value: &[u8],
    ) -> Result<bool> {
        let geometry = self.geometry();
        if !is_inline(key, value.len(), geometry) {
            return Ok(false);
        }
        let (hash, attr) = (key.hash(geometry), inline(key, value));
        self.edit(hit.path.leaf.block, |open, geometry| {
            let new = edit::LeafAttr::new(&attr, hash)?;
            let all = edit::attributes(open.bytes(), geometry)?;
            let Some(old) = all.get(hit.slot) else { return Ok(false) };
            let used: usize = all.iter().map(edit::LeafAttr::size).sum();
            if used - old.size() + new.size() > edit::capacity(geometry) {
                return Ok(false);
            }
            edit::remove(open, geometry, hit.slot)?;
            edit::insert(open, geometry, hit.slot, &new)
        })
    }

    /// Inserts a new attribute with its value.
    pub(super) fn node_set(&mut self, key: &AttrKey<'_>, value: &NewAttrValue<'_>) -> Result<()> {
        if let NewAttrValue::Inline(bytes) = value {
            return self.node_insert(&inline(key, bytes));
        }
        let NewAttrValue::Remote { runs, length } = *value else { return Ok(()) };
        let block = self.map_remote(runs)?;
        let value = AttrValue::Remote { block, length };
        self.node_insert(&Attr { namespace: key.namespace, incomplete: false, name: key.name, value })
    }

    /// Inserts an attribute that does not exist.
    pub(super) fn node_insert(&mut self, attr: &Attr<'_>) -> Result<()> {
        let hash = attr.hash(self.geometry());
        let new = edit::LeafAttr::new(attr, hash).map_err(|damage| self.damaged(damage))?;
        // At worst, two splits: one at the slot, and one that moves off a side.
        for _ in 0..3 {
            let mut path = self.descend(hash)?;
            let block = path.leaf.block;
            let slot = self.view(block, |bytes, geometry| {
                Ok(AttrLeaf::of(bytes, geometry)?.entries.partition_point(|entry| entry.hashval.get() < hash))
            })?;
            if self.edit(block, |open, geometry| edit::insert(open, geometry, slot, &new))? {
                return self.fix_leaf_hash(&path);
            }
            if self.split_leaf(&mut path, slot, &new)? {
                return Ok(());
            }
        }
        Err(self.damaged(Damage::new("attribute leaf", "firstused", "room after two splits", "none")))
    }

    /// Removes an attribute, and the blocks of its value.
    pub(super) fn node_remove(&mut self, hit: FoundAttr) -> Result<()> {
        let last = hit.path.nodes.last().is_some()
            && self.view(hit.path.leaf.block, |bytes, geometry| {
                Ok(AttrLeaf::of(bytes, geometry)?.entries.len() == 1)
            })?;
        if last || hit.remote.is_some() {
            self.ensure_frees()?;
        }
        self.edit(hit.path.leaf.block, |open, geometry| edit::remove(open, geometry, hit.slot))?;
        if let Some((block, length)) = hit.remote {
            self.free_remote(block, length)?;
        }
        self.fix_leaf_hash(&hit.path)?;
        self.join_leaf(hit.path)
    }

    /// Updates the nodes above a leaf with the leaf's highest hash.
    pub(super) fn fix_leaf_hash(&mut self, path: &AttrPath) -> Result<()> {
        match self.view(path.leaf.block, edit::last_hash)? {
            Some(hash) => self.fix_hashes(&path.nodes, hash),
            None => Ok(()),
        }
    }

    /// Sets the hash of the child that the path follows, from the last node upwards, until the child is not the last
    /// one of its node.
    pub(super) fn fix_hashes(&mut self, nodes: &[AttrPathBlock], hash: u32) -> Result<()> {
        for step in nodes.iter().rev() {
            let changed = self.edit(step.block, |open, _| node::set_hash(open, step.index, hash))?;
            let count = self.view(step.block, |bytes, _| node::NodeShape::of(bytes))?.count;
            if !changed || step.index + 1 != count {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Formats a block that was allocated for an empty fork as its first leaf.
    pub(super) fn init_first_leaf(&mut self, run: BlockRun) -> Result<()> {
        let leaf = self.map_new_block(FileBlock(0), run)?;
        self.edit(leaf, |open, geometry| edit::init(open, geometry, leaf.at))
    }

    /// Converts a single leaf to shortform if the attributes fit; removes the fork if there are none.
    pub(super) fn shrink(&mut self) -> Result<()> {
        let alone =
            matches!(self.extents().as_slice(), [one] if one.offset == FileBlock(0) && one.count == 1);
        if !alone || self.state.extent_count(ForkKind::Attr) != 1 {
            return Ok(());
        }
        let root = self.root()?;
        if self.is_node(root) {
            return Ok(());
        }
        let bytes = self.bytes(root).to_vec();
        let leaf = AttrLeaf::of(&bytes, self.geometry()).map_err(|damage| self.damaged(damage))?;
        let attributes: std::result::Result<Vec<_>, _> = leaf.attrs().collect();
        let attributes = attributes.map_err(|damage| self.damaged(damage))?;
        if attributes.is_empty() {
            self.free(root)?;
            return self.end_fork();
        }
        let inline = |attr: &Attr<'_>| !attr.incomplete && matches!(attr.value, AttrValue::Inline(_));
        let lengths = attributes.iter().map(|attr| (attr.name.len(), attr.value.length()));
        let fits = attributes.iter().all(inline)
            && format::attr::edit::shortform::size(lengths)
                .is_some_and(|size| super::forkoff::forkoff_for(self.state, size).is_some());
        let Some(contents) = fits.then(|| format::attr::edit::shortform::build(attributes)).flatten() else {
            return Ok(());
        };
        self.free(root)?;
        if self.put_shortform(&contents) {
            return Ok(());
        }
        Err(self.damaged(Damage::new("inode", "forkoff", "room for attributes that were counted", "none")))
    }
}

fn inline<'a>(key: &AttrKey<'a>, value: &'a [u8]) -> Attr<'a> {
    Attr { namespace: key.namespace, incomplete: false, name: key.name, value: AttrValue::Inline(value) }
}

fn remote(attr: &Attr<'_>) -> Option<(FileBlock, u32)> {
    match attr.value {
        AttrValue::Inline(_) => None,
        AttrValue::Remote { block, length } => Some((block, length)),
    }
}
