//! The slot for a new name, so that creating a file searches for its name once.

use format::dir::edit::entry::NewEntry;
use format::dir::edit::leaf::LeafShape;

use super::Result;
use super::data::LeafSearch;
use super::fork::DirFork;
use super::node::NodeLookup;
use super::{DirFormat, Directory, NAME_EXISTS, verify_name};
use crate::dabtree::TreePath;

/// Where the entry of a new name goes. Valid within one transaction, until the directory changes.
pub struct InsertSlot<Id> {
    slot: FormatSlot<Id>,
    /// [`DirFork::epoch`] at the time of the search.
    epoch: u32,
}

enum FormatSlot<Id> {
    Shortform,
    Block(Id),
    Leaf(Id, LeafInsertSlot),
    /// The path to the first leaf that may contain the hash, and the slot there; `None` if the search has moved on
    /// to other leaves.
    Node(Option<(TreePath<Id>, LeafInsertSlot)>),
}

/// The slot for the leaf entry of a new name.
#[derive(Clone, Copy)]
pub(super) struct LeafInsertSlot {
    pub hash: u32,
    pub slot: usize,
    /// The layout of the leaf before the insertion.
    pub shape: LeafShape,
}

impl<F: DirFork> Directory<'_, F> {
    /// Checks that a name does not exist, and finds the slot for it.
    ///
    /// # Errors
    /// `EEXIST`; `EINVAL` and `ENAMETOOLONG` for an invalid name; damage; I/O errors.
    pub fn insert_slot(&mut self, name: &[u8]) -> Result<InsertSlot<F::BlockId>> {
        verify_name(name)?;
        let free_slot = |search: LeafSearch<F::BlockId>| match search {
            LeafSearch::Found(_) | LeafSearch::InOtherLeaf(..) => Err(NAME_EXISTS),
            LeafSearch::Absent(slot) | LeafSearch::MayContinue(slot) => Ok(slot),
        };
        let slot = match self.format()? {
            DirFormat::Shortform => match self.shortform_find(name)? {
                Some(_) => return Err(NAME_EXISTS),
                None => FormatSlot::Shortform,
            },
            DirFormat::Block(id) => {
                self.block_search(id, name).and_then(free_slot)?;
                FormatSlot::Block(id)
            }
            DirFormat::Leaf(id) => {
                let wanted = self.hashed(name);
                let (shape, search) = self.leaf_search(id, wanted)?;
                FormatSlot::Leaf(id, LeafInsertSlot { hash: wanted.hash, slot: free_slot(search)?, shape })
            }
            DirFormat::Node(root) => match self.node_find(root, name)? {
                NodeLookup { hit: Some(_), .. } => return Err(NAME_EXISTS),
                NodeLookup { path, insert_slot, .. } => {
                    FormatSlot::Node(insert_slot.map(|slot| (path, slot)))
                }
            },
        };
        Ok(InsertSlot { slot, epoch: self.fork.epoch() })
    }

    /// Adds a name in the slot found for it. Searches again if the transaction has released blocks since.
    ///
    /// # Errors
    /// `ENOSPC`, with nothing changed; damage.
    pub fn add_at(&mut self, insert_slot: InsertSlot<F::BlockId>, new: NewEntry<'_>) -> Result<()> {
        let insert_slot =
            if insert_slot.epoch == self.fork.epoch() { insert_slot } else { self.insert_slot(new.name)? };
        match insert_slot.slot {
            FormatSlot::Shortform => self.shortform_insert(new),
            FormatSlot::Block(id) => self.block_insert(id, new),
            FormatSlot::Leaf(id, slot) => self.leaf_insert(id, slot, new),
            FormatSlot::Node(Some((path, slot))) => self.node_insert_at(path, slot, new),
            FormatSlot::Node(None) => self.node_insert(new),
        }
    }
}
