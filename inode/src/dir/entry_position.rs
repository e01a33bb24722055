//! Where a name stands: so that taking it away searches for it once.

use super::data::IndexedEntry;
use super::error::Result;
use super::fork::DirFork;
use super::node::{NodeLookup, TreePath};
use super::{DirFormat, Directory, FoundEntry, NO_SUCH_NAME, verify_length, verify_name};

/// The place of a name, within one transaction and while the directory stays as it is.
pub struct EntryPosition<Id> {
    found: FoundEntry,
    at: FormatPosition<Id>,
    /// When the search was: blocks may have been let go since.
    epoch: u32,
}

enum FormatPosition<Id> {
    /// The entry's first byte.
    Shortform(usize),
    Block(Id, IndexedEntry<Id>),
    Leaf(Id, IndexedEntry<Id>),
    Node(TreePath<Id>, IndexedEntry<Id>),
}

impl<Id> EntryPosition<Id> {
    /// What the entry says.
    pub fn found(&self) -> FoundEntry {
        self.found
    }
}

impl<F: DirFork> Directory<'_, F> {
    /// Looks a name up that has an entry: `.` and `..` have none where the directory lies in its inode.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, damage, and what the device reports.
    pub fn entry_position(&mut self, name: &[u8]) -> Result<Option<EntryPosition<F::BlockId>>> {
        verify_length(name)?;
        let at = match self.format()? {
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
        Ok(at.map(|(found, at)| EntryPosition { found, at, epoch: self.fork.epoch() }))
    }

    /// Removes the name that a place was found for, and says what it was.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_at(&mut self, place: EntryPosition<F::BlockId>, name: &[u8]) -> Result<FoundEntry> {
        verify_name(name)?;
        let is_old = place.epoch != self.fork.epoch();
        let place = if is_old { self.entry_position(name)?.ok_or(NO_SUCH_NAME)? } else { place };
        match place.at {
            FormatPosition::Shortform(start) => self.shortform_remove(start)?,
            FormatPosition::Block(id, hit) => self.block_remove(id, hit)?,
            FormatPosition::Leaf(id, hit) => self.leaf_remove(id, hit)?,
            FormatPosition::Node(path, hit) => self.node_remove(path, hit)?,
        }
        self.index_removed(name, place.found.pointer);
        Ok(place.found)
    }
}
