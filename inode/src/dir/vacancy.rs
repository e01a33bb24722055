//! Where a name would go that a directory does not have: so that making a file searches for its name once.

use format::dir::edit::entry::NewEntry;

use super::blocks::DirBlocks;
use super::data::Search;
use super::error::Result;
use super::tree::{NewSlot, Path, Way};
use super::{Directory, Form, NAME_EXISTS, verify_name};

/// The place of a name that is not there, within one transaction and while the directory stays as it is.
pub struct Vacancy<Id> {
    place: Place<Id>,
    /// When the search was: blocks may have been let go since.
    epoch: u32,
}

enum Place<Id> {
    Inside,
    Single(Id),
    Alone(Id, NewSlot),
    /// The first leaf that may hold the hash, and the slot; without one, this is not the leaf that was searched last.
    Tree(Option<(Path<Id>, NewSlot)>),
}

impl<B: DirBlocks> Directory<'_, B> {
    /// Looks a name up that shall be new.
    ///
    /// # Errors
    /// `EEXIST`, `EINVAL` for what cannot be a name, `ENAMETOOLONG`; damage, and what the device reports.
    pub fn vacancy(&mut self, name: &[u8]) -> Result<Vacancy<B::Id>> {
        verify_name(name)?;
        let free = |search: Search<B::Id>| match search {
            Search::Hit(_) | Search::Elsewhere(..) => Err(NAME_EXISTS),
            Search::Miss(slot) | Search::Beyond(slot) => Ok(slot),
        };
        let place = match self.form()? {
            Form::Inside => match self.inside_find(name)? {
                Some(_) => return Err(NAME_EXISTS),
                None => Place::Inside,
            },
            Form::Single(id) => {
                self.single_search(id, name).and_then(free)?;
                Place::Single(id)
            }
            Form::Alone(id) => {
                let wanted = self.wanted(name);
                let (shape, search) = self.alone_search(id, wanted)?;
                Place::Alone(id, NewSlot { hash: wanted.hash, slot: free(search)?, shape })
            }
            Form::Tree(root) => match self.tree_find(root, name)? {
                Way { hit: Some(_), .. } => return Err(NAME_EXISTS),
                Way { path, first, .. } => Place::Tree(first.map(|slot| (path, slot))),
            },
        };
        Ok(Vacancy { place, epoch: self.blocks.epoch() })
    }

    /// Adds the name that a vacancy was found for.
    ///
    /// # Errors
    /// `ENOSPC` where a block cannot be had; damage.
    pub fn add_at(&mut self, vacancy: Vacancy<B::Id>, new: NewEntry<'_>) -> Result<()> {
        let vacancy = if vacancy.epoch == self.blocks.epoch() { vacancy } else { self.vacancy(new.name)? };
        match vacancy.place {
            Place::Inside => self.inside_insert(new),
            Place::Single(id) => self.single_insert(id, new),
            Place::Alone(id, NewSlot { hash, slot, shape }) => {
                self.alone_insert((id, shape), (slot, hash), new)
            }
            Place::Tree(Some((path, slot))) => self.tree_insert_at(path, slot, new),
            Place::Tree(None) => self.tree_insert(new),
        }
    }
}
