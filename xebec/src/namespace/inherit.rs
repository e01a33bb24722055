//! Access control lists that a new file takes over of its directory.
//!
//! A directory may have a default list. A new file begins with it as the list that governs its access, less what its
//! permission bits do not ask for, and these bits then say what is left; a new directory has the default list, too. All
//! of it is part of the transaction that makes the file.
//!
//! Most directories have none, and creating in them pays nothing for it: whether there is a list shows only once the
//! directory is locked, and where there is one, the change begins anew with the room that it takes.

use base::errno;
use format::attr::{Namespace, acl};
use inode::attr::{Key, NewValue, is_inline};

use crate::change::{Change, Locked};
use crate::new::{Kind, New};
use crate::recover::damaged;
use crate::{Error, Result, Volume};

/// What a change that makes a file has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// The file alone.
    Nothing,
    /// And access control lists.
    Lists,
}

/// What a new file takes over.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// Permission bits, if a list changes them.
    permissions: Option<u16>,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

const ACCESS: Key<'static> = Key::new(Namespace::Trusted, acl::ACCESS);
const DEFAULT: Key<'static> = Key::new(Namespace::Trusted, acl::DEFAULT);

impl Volume {
    /// Makes a file; `None` of `make` asks for more room.
    pub(super) fn inheriting<T>(&self, make: impl Fn(With) -> Result<Option<T>>) -> Result<T> {
        self.with_room(|| {
            let mut with = With::Nothing;
            loop {
                if let Some(made) = make(with)? {
                    return Ok(made);
                }
                with = With::Lists;
            }
        })
    }

    /// Begins a change that makes a file.
    pub(super) fn begin_new(&self, new: &New<'_>, with: With) -> Result<Change<'_>> {
        let (reservations, blocks) = (&self.reservations, self.reservations.create_blocks(new));
        match with {
            With::Nothing => self.begin_taking(reservations.create, blocks),
            With::Lists => {
                self.begin_taking(reservations.create_with_lists, blocks + 2 * reservations.attribute_blocks)
            }
        }
    }
}

impl Change<'_> {
    /// What a new file takes over of a directory; `None` where that takes more room than there is.
    pub(super) fn inherited(
        &mut self,
        dir: &mut Locked,
        new: &New<'_>,
        with: With,
    ) -> Result<Option<Inherited>> {
        if dir.attr_offset() == 0 || matches!(new.kind, Kind::Symlink(_)) {
            return Ok(Some(Inherited::default()));
        }
        let Some(list) = self.attributes(dir, |attributes| attributes.get(&DEFAULT))? else {
            return Ok(Some(Inherited::default()));
        };
        if !is_inline(&DEFAULT, list.len(), &self.volume.geometry) {
            let why = "the directory's default list is too long to be taken over by a new file";
            return Err(Error::refused(errno::E2BIG, why));
        }
        if with == With::Nothing {
            self.tx.release_clean();
            return Ok(None);
        }
        let stored = acl::inherited(&list, new.permissions).map_err(|damage| damaged(dir.ino(), damage))?;
        Ok(Some(Inherited {
            permissions: Some(stored.permissions),
            access: (!stored.is_mode).then_some(stored.value),
            default: matches!(new.kind, Kind::Directory).then_some(list),
        }))
    }

    /// Gives a new file what it takes over.
    pub(super) fn bequeath(&mut self, child: &mut Locked, inherited: &Inherited) -> Result<()> {
        if let Some(permissions) = inherited.permissions {
            let mode = child.mode();
            child.set_mode(mode & !0o777 | permissions);
        }
        for (key, list) in [(ACCESS, &inherited.access), (DEFAULT, &inherited.default)] {
            if let Some(list) = list {
                self.attributes(child, |attributes| attributes.set(&key, &NewValue::Inline(list)))?;
            }
        }
        Ok(())
    }
}
