//! The position of an existing name, so that removing a file searches for its name once.

use super::Result;
use super::data::LeafHit;
use super::fork::DirFork;
use super::node::NodeLookup;
use super::{DirFormat, Directory, FoundEntry, NO_SUCH_NAME, verify_length, verify_name};
use crate::dabtree::TreePath;

/// Where the entry of a name is. Valid within one transaction, until the directory changes.
pub struct EntryPosition<Id> {
    found: FoundEntry,
    position: FormatPosition<Id>,
    /// [`DirFork::epoch`] at the time of the search.
    epoch: u32,
}

enum FormatPosition<Id> {
    /// Offset of the entry in the inode.
    Shortform(usize),
    Block(Id, LeafHit<Id>),
    Leaf(Id, LeafHit<Id>),
    Node(TreePath<Id>, LeafHit<Id>),
}

impl<Id> EntryPosition<Id> {
    /// The entry.
    pub fn found(&self) -> FoundEntry {
        self.found
    }
}

impl<F: DirFork> Directory<'_, F> {
    /// Finds the entry of a name. `.` and `..` have none in shortform.
    ///
    /// # Errors
    /// `ENAMETOOLONG`; damage; I/O errors.
    pub fn entry_position(&mut self, name: &[u8]) -> Result<Option<EntryPosition<F::BlockId>>> {
        verify_length(name)?;
        let found = match self.format()? {
            DirFormat::Shortform => {
                self.shortform_find(name)?.map(|(start, found)| (found, FormatPosition::Shortform(start)))
            }
            DirFormat::Block(id) => {
                self.block_find(id, name)?.map(|hit| (hit.found, FormatPosition::Block(id, hit)))
            }
            DirFormat::Leaf(id) => {
                self.leaf_find(id, name)?.map(|hit| (hit.found, FormatPosition::Leaf(id, hit)))
            }
            DirFormat::Node(root) => {
                let NodeLookup { path, hit, .. } = self.node_find(root, name)?;
                hit.map(|hit| (hit.found, FormatPosition::Node(path, hit)))
            }
        };
        Ok(found.map(|(found, position)| EntryPosition { found, position, epoch: self.fork.epoch() }))
    }

    /// Removes `name`, whose position is given; returns its entry. Searches again if the transaction has released
    /// blocks since.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn remove_at(&mut self, entry: EntryPosition<F::BlockId>, name: &[u8]) -> Result<FoundEntry> {
        verify_name(name)?;
        let is_stale = entry.epoch != self.fork.epoch();
        let entry = if is_stale { self.entry_position(name)?.ok_or(NO_SUCH_NAME)? } else { entry };
        match entry.position {
            FormatPosition::Shortform(start) => self.shortform_remove(start)?,
            FormatPosition::Block(id, hit) => self.block_remove(id, hit)?,
            FormatPosition::Leaf(id, hit) => self.leaf_remove(id, hit)?,
            FormatPosition::Node(path, hit) => self.node_remove(path, hit)?,
        }
        self.index_removed(name, entry.found.pointer);
        Ok(entry.found)
    }
}
