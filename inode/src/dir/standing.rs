//! Where a name stands: so that taking it away searches for it once.

use super::blocks::DirBlocks;
use super::data::Hit;
use super::error::Result;
use super::tree::{Path, Way};
use super::{Directory, Form, Found, NO_SUCH_NAME, verify_length, verify_name};

/// The place of a name, within one transaction and while the directory stays as it is.
pub struct Standing<Id> {
    found: Found,
    at: At<Id>,
    /// When the search was: blocks may have been let go since.
    epoch: u32,
}

enum At<Id> {
    /// The entry's first byte.
    Inside(usize),
    Single(Id, Hit<Id>),
    Alone(Id, Hit<Id>),
    Tree(Path<Id>, Hit<Id>),
}

impl<Id> Standing<Id> {
    /// What the entry says.
    pub fn found(&self) -> Found {
        self.found
    }
}

impl<B: DirBlocks> Directory<'_, B> {
    /// Looks a name up that has an entry: `.` and `..` have none where the directory lies in its inode.
    ///
    /// # Errors
    /// `ENAMETOOLONG`, damage, and what the device reports.
    pub fn standing(&mut self, name: &[u8]) -> Result<Option<Standing<B::Id>>> {
        verify_length(name)?;
        let at = match self.form()? {
            Form::Inside => self.inside_find(name)?.map(|(start, found)| (found, At::Inside(start))),
            Form::Single(id) => self.single_find(id, name)?.map(|hit| (hit.found, At::Single(id, hit))),
            Form::Alone(id) => self.alone_find(id, name)?.map(|hit| (hit.found, At::Alone(id, hit))),
            Form::Tree(root) => {
                let Way { path, hit, .. } = self.tree_find(root, name)?;
                hit.map(|hit| (hit.found, At::Tree(path, hit)))
            }
        };
        Ok(at.map(|(found, at)| Standing { found, at, epoch: self.blocks.epoch() }))
    }

    /// Removes the name that a place was found for, and says what it was.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_at(&mut self, place: Standing<B::Id>, name: &[u8]) -> Result<Found> {
        verify_name(name)?;
        let is_old = place.epoch != self.blocks.epoch();
        let place = if is_old { self.standing(name)?.ok_or(NO_SUCH_NAME)? } else { place };
        match place.at {
            At::Inside(start) => self.inside_remove(start)?,
            At::Single(id, hit) => self.single_remove(id, hit)?,
            At::Alone(id, hit) => self.alone_remove(id, hit)?,
            At::Tree(path, hit) => self.tree_remove(path, hit)?,
        }
        self.index_removed(name, place.found.pointer);
        Ok(place.found)
    }
}
