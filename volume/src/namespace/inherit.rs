//! Attributes that a new file begins with: access control lists that it takes over of its directory, and what its maker
//! asks for.
//!
//! A directory may have a default list. A new file begins with it as the list that governs its access, less what its
//! permission bits do not ask for, and these bits then say what is left; a new directory has the default list, too.
//!
//! # Invariants
//! After a power cut, a file that has its name has all of these attributes. Few and short ones are part of the
//! transaction that makes the file. Where they are more, the file is made without a name, as one that recovery frees;
//! it gets them one after the other, and its name last.
//!
//! Most directories have no list, and creating in them pays nothing for it: whether there is one shows only once the
//! directory is locked, and where there is, the change begins anew with the room that it takes.

use base::errno;
use format::attr::{Namespace, acl};
use inode::InodeRef;
use inode::attr::{AttrKey, NewAttrValue, is_inline};

use crate::attributes::{Given, SetAttribute, given};
use crate::new_file::{NewFile, NewFileType};
use crate::operation::{Locked, Operation};
use crate::recover::damaged;
use crate::{Error, Result, Volume};

/// How a file comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// It has no attributes.
    Nothing,
    /// It has up to [`MOST_AT_ONCE`], beside their names, in the transaction that makes it.
    Attributes,
    /// It gets them before its name.
    Parts,
}

/// What making a file in one go came to.
pub(super) enum Made<T> {
    Done(T),
    /// It must be made in another way.
    Needs(With),
}

/// What a new file begins with.
pub(super) struct Begins<'g> {
    /// Permission bits, if a list changes them.
    permissions: Option<u16>,
    lists: [Option<(AttrKey<'static>, Vec<u8>)>; 2],
    given: &'g [Given<'g>],
}

/// Attributes for which a change that makes a file has room.
const MOST_AT_ONCE: usize = 2;
const ACCESS: AttrKey<'static> = AttrKey::new(Namespace::Trusted, acl::ACCESS);
const DEFAULT: AttrKey<'static> = AttrKey::new(Namespace::Trusted, acl::DEFAULT);

impl Volume {
    /// Makes a file, in the way that its attributes need. `make` makes it in one go, with its name if it is to have
    /// one; `nameless` makes it without, and `name` names it.
    pub(super) fn beginning<T>(
        &self,
        new: &NewFile<'_>,
        make: impl Fn(With, &[Given<'_>]) -> Result<Made<T>>,
        by_parts: impl Fn(&[Given<'_>]) -> Result<T>,
    ) -> Result<T> {
        let given = given(new)?;
        let mut with = With::Nothing;
        if !given.is_empty() {
            self.note_attributes()?;
            with = With::Attributes;
        }
        loop {
            if with == With::Parts {
                return by_parts(&given);
            }
            match self.retry_on_enospc(|| make(with, &given))? {
                Made::Done(made) => return Ok(made),
                Made::Needs(more) => with = more,
            }
        }
    }

    /// Begins a change that makes a file.
    pub(super) fn begin_new(&self, new: &NewFile<'_>, with: With) -> Result<Operation<'_>> {
        let (reservations, blocks) = (&self.reservations, self.reservations.create_blocks(new));
        let room = MOST_AT_ONCE as u32 * reservations.attribute_blocks;
        match with {
            With::Attributes => self.begin_with_blocks(reservations.create_with_attributes, blocks + room),
            With::Nothing | With::Parts => self.begin_with_blocks(reservations.create, blocks),
        }
    }

    /// Gives a file that has no name yet what it begins with.
    pub(super) fn bequeath_by_parts(&self, file: &InodeRef, begins: &Begins<'_>) -> Result<()> {
        for (key, list) in begins.lists.iter().flatten() {
            self.retry_on_enospc(|| {
                let mut change = self.begin_attribute(file.ino(), self.value_bytes(key, list.len()))?;
                let mut state = file.lock();
                change.put_attribute(&mut state, key, list)?;
                change.commit(&mut [&mut state])
            })?;
        }
        for (name, wanted) in begins.given {
            self.retry_on_enospc(|| self.try_set(file, name, wanted, SetAttribute::Any))?;
        }
        Ok(())
    }
}

impl Operation<'_> {
    /// What a new file in a directory begins with, or how it must be made for that.
    pub(super) fn begins<'g>(
        &mut self,
        dir: &mut Locked,
        new: &NewFile<'_>,
        (with, given): (With, &'g [Given<'g>]),
    ) -> Result<Made<Begins<'g>>> {
        let geometry = &self.volume.geometry;
        let mut begins = Begins { permissions: None, lists: [None, None], given };
        if let Some(list) = self.default_list(dir, new)? {
            let stored =
                acl::inherited(&list, new.permissions).map_err(|damage| damaged(dir.ino(), damage))?;
            begins.permissions = Some(stored.permissions);
            begins.lists = [
                (!stored.is_mode).then_some((ACCESS, stored.value)),
                matches!(new.file_type, NewFileType::Directory).then_some((DEFAULT, list)),
            ];
        }
        let lists = begins.lists.iter().flatten().map(|(key, list)| (*key, list.len()));
        let given =
            given.iter().map(|(name, wanted)| (name.key, wanted.value.as_ref().map_or(0, |v| v.len())));
        let all = || lists.clone().chain(given.clone());
        let need = match all().count() {
            0 if begins.permissions.is_none() => With::Nothing,
            count
                if count <= MOST_AT_ONCE && all().all(|(key, length)| is_inline(&key, length, geometry)) =>
            {
                With::Attributes
            }
            _ => With::Parts,
        };
        if with == need || with == With::Parts || need == With::Nothing {
            return Ok(Made::Done(begins));
        }
        self.tx.release_clean();
        Ok(Made::Needs(need))
    }

    /// The list that a new file takes over, if there is one.
    fn default_list(&mut self, dir: &mut Locked, new: &NewFile<'_>) -> Result<Option<Vec<u8>>> {
        if dir.attr_offset() == 0 || matches!(new.file_type, NewFileType::Symlink(_)) {
            return Ok(None);
        }
        self.attributes(dir, |attributes| attributes.get(&DEFAULT))
    }

    /// Gives a new file its permission bits and, unless they come later, its attributes.
    pub(super) fn bequeath(&mut self, child: &mut Locked, begins: &Begins<'_>, with: With) -> Result<()> {
        let permit = |child: &mut Locked, permissions: Option<u16>| {
            if let Some(permissions) = permissions {
                let mode = child.mode();
                child.set_mode(mode & !0o777 | permissions);
            }
        };
        permit(child, begins.permissions);
        if with == With::Parts {
            return Ok(());
        }
        let lists = begins.lists.iter().flatten().map(|(key, list)| (key, Some(list.as_slice()), None));
        let given = begins
            .given
            .iter()
            .map(|(name, wanted)| (&name.key, wanted.value.as_deref(), wanted.permissions));
        for (key, value, permissions) in lists.chain(given) {
            match value {
                Some(value) => {
                    self.attributes(child, |attributes| attributes.set(key, &NewAttrValue::Inline(value)))?;
                }
                // A list that is no more than the permission bits, in place of one that was taken over.
                None => drop(self.attributes(child, |attributes| attributes.remove(key))?),
            }
            permit(child, permissions);
        }
        Ok(())
    }

    /// Refuses what can be refused before anything is made.
    pub(super) fn expect_vacant(&mut self, dir: &mut Locked, name: &[u8]) -> Result<()> {
        match self.lookup(dir, name)? {
            Some(_) => Err(Error::refused(errno::EEXIST, "the name exists")),
            None => Ok(()),
        }
    }
}
