//! Splitting a full leaf.
//!
//! An attribute takes up to 3/4 of a leaf, so it may fit neither half. Then the leaf is split at the attribute's place,
//! and the attribute gets a leaf of its own between the halves.

use format::attr::edit::leaf::{self as edit, LeafAttr};

use super::blocks::AttrBlock;
use super::{Attributes, Result};
use crate::dabtree::split::{add_leaf, push_leaf_root_down, put_leaf};
use crate::dabtree::{HashTree, TreePath, TreeReader};

/// The distribution of a leaf's attributes over two leaves, with or without the new attribute.
struct LeafSplit {
    items: Vec<LeafAttr>,
    /// Index of the first attribute of the right leaf.
    cut: usize,
    has_new: bool,
}

fn size(items: &[LeafAttr]) -> usize {
    items.iter().map(LeafAttr::size).sum()
}

impl LeafSplit {
    /// The most even distribution; without the new attribute, where it fits neither leaf.
    fn of(mut items: Vec<LeafAttr>, slot: usize, new: &LeafAttr, capacity: usize) -> Self {
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
        mut path: TreePath<AttrBlock>,
        slot: usize,
        new: &LeafAttr,
    ) -> Result<bool> {
        let geometry = self.geometry();
        let items = self.view(path.leaf.id, |bytes| edit::attributes(bytes, geometry))?;
        let halves = LeafSplit::of(items, slot, new, edit::capacity(geometry));
        push_leaf_root_down(self, &mut path)?;
        let right = self.new_tree_block()?;
        let (kept, moved) = halves.items.split_at(halves.cut);
        put_leaf(self, right.id, moved)?;
        self.edit(path.leaf.id, |block, geometry| edit::put_attributes(block, geometry, kept))?;
        add_leaf(self, &mut path, right)?;
        Ok(halves.has_new)
    }
}
