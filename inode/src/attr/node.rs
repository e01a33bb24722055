//! Changes of attributes in leaf and node format: a hash tree of leaves, with nodes above them if there are several.

use base::FileBlock;
use format::Damage;
use format::attr::edit::leaf as edit;
use format::attr::leaf::AttrLeaf;
use format::attr::{Attr, AttrValue};
use format::inode::ForkKind;

use super::read::{AttrReader, FoundAttr};
use super::{AttrKey, Attributes, NewAttrValue, Result, is_inline};
use crate::dabtree::join::join_leaf;
use crate::dabtree::{HashTree, TreeReader};
use crate::space::BlockRun;

impl Attributes<'_> {
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
        self.edit(hit.path.leaf.id, |block, geometry| {
            let new = edit::LeafAttr::new(&attr, hash)?;
            let all = edit::attributes(block.bytes(), geometry)?;
            let Some(old) = all.get(hit.slot) else { return Ok(false) };
            let used: usize = all.iter().map(edit::LeafAttr::size).sum();
            if used - old.size() + new.size() > edit::capacity(geometry) {
                return Ok(false);
            }
            edit::remove(block, geometry, hit.slot)?;
            edit::insert(block, geometry, hit.slot, &new)
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
        let geometry = self.geometry();
        let hash = attr.hash(geometry);
        let new = edit::LeafAttr::new(attr, hash).map_err(|damage| self.damaged(damage))?;
        // At worst, two splits: one at the slot, and one that moves off a side.
        for _ in 0..3 {
            let path = self.descend_to(hash)?;
            let block = path.leaf.id;
            let slot = self.view(block, |bytes| {
                Ok(AttrLeaf::of(bytes, geometry)?.entries.partition_point(|entry| entry.hashval.get() < hash))
            })?;
            if self.edit(block, |block, geometry| edit::insert(block, geometry, slot, &new))? {
                return self.fix_leaf_hash(&path);
            }
            if self.split_leaf(path, slot, &new)? {
                return Ok(());
            }
        }
        Err(self.damaged(Damage::new("attribute leaf", "firstused", "room after two splits", "none")))
    }

    /// Removes an attribute, and the blocks of its value.
    pub(super) fn node_remove(&mut self, hit: FoundAttr) -> Result<()> {
        let geometry = self.geometry();
        let last = hit.path.nodes.last().is_some()
            && self.view(hit.path.leaf.id, |bytes| Ok(AttrLeaf::of(bytes, geometry)?.entries.len() == 1))?;
        if last || hit.remote.is_some() {
            // A leaf, the nodes above it without the root, and a value.
            self.ensure_frees(hit.path.nodes.len().max(1) + 1)?;
        }
        self.edit(hit.path.leaf.id, |block, geometry| edit::remove(block, geometry, hit.slot))?;
        if let Some((block, length)) = hit.remote {
            self.free_remote(block, length)?;
        }
        self.fix_leaf_hash(&hit.path)?;
        join_leaf(self, hit.path)
    }

    /// Formats a block that was allocated for an empty fork as its first leaf.
    pub(super) fn init_first_leaf(&mut self, run: BlockRun) -> Result<()> {
        let leaf = self.map_new_block(FileBlock(0), run)?;
        self.edit(leaf, |block, geometry| edit::init(block, geometry, leaf.at))
    }

    /// Converts a single leaf to shortform if the attributes fit; removes the fork if there are none.
    pub(super) fn shrink(&mut self) -> Result<()> {
        if self.fork.state.extent_count(ForkKind::Attr) != 1 {
            return Ok(());
        }
        let (mut fork, tx) = self.fork.lookup()?;
        let only = fork.next(Some(tx), FileBlock(0))?;
        if only.is_none_or(|only| only.offset != FileBlock(0) || only.count != 1) {
            return Ok(());
        }
        let root = self.read_tree_block(self.root())?;
        if self.is_node(root) {
            return Ok(());
        }
        let bytes = self.bytes(root).to_vec();
        let leaf = AttrLeaf::of(&bytes, self.geometry()).map_err(|damage| self.damaged(damage))?;
        let attributes: std::result::Result<Vec<_>, _> = leaf.attrs().collect();
        let attributes = attributes.map_err(|damage| self.damaged(damage))?;
        if attributes.is_empty() {
            self.free_tree_block(self.root(), root)?;
            return self.end_fork();
        }
        let inline = |attr: &Attr<'_>| !attr.incomplete && matches!(attr.value, AttrValue::Inline(_));
        let lengths = attributes.iter().map(|attr| (attr.name.len(), attr.value.length()));
        let fits = attributes.iter().all(inline)
            && format::attr::edit::shortform::size(lengths)
                .is_some_and(|size| super::forkoff::forkoff_for(self.fork.state, size).is_some());
        let Some(contents) = fits.then(|| format::attr::edit::shortform::build(attributes)).flatten() else {
            return Ok(());
        };
        self.free_tree_block(self.root(), root)?;
        if self.put_shortform(&contents) {
            return Ok(());
        }
        Err(self.damaged(Damage::new("inode", "forkoff", "room for attributes that were counted", "none")))
    }
}

fn inline<'a>(key: &AttrKey<'a>, value: &'a [u8]) -> Attr<'a> {
    Attr { namespace: key.namespace, incomplete: false, name: key.name, value: AttrValue::Inline(value) }
}
