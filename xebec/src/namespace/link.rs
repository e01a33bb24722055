//! Further names.

use base::{Ino, errno};
use format::inode::FileType;
use inode::InodeRef;
use inode::dir::NewEntry;
use inode::state::Time;

use super::create::MAX_LINKS;
use super::order::lock_all;
use super::parents::Parent;
use crate::change::{expect_directory, is_directory, is_dots};
use crate::{Error, Result, Volume};

impl Volume {
    /// Gives a file another name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `ENOENT` where the file has lost its last name, `EMLINK`, `ENOSPC`.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        let file = self.inode(ino)?;
        self.give_name(&file, dir, name, false)
    }

    /// Gives a file a name; one that has none only if `anonymous`.
    pub(super) fn give_name(&self, file: &InodeRef, dir: Ino, name: &[u8], anonymous: bool) -> Result<()> {
        if is_dots(name) {
            return Err(self.refuse_dots(dir, errno::EEXIST, "the name exists"));
        }
        let dir_ref = self.inode(dir)?;
        if file.ino() == dir {
            return Err(self.refuse_name_in_itself(dir, name));
        }
        self.with_room(|| self.try_give_name(file, &dir_ref, name, anonymous))
    }

    /// Why a file, if it is a directory at all, does not get a name in itself.
    fn refuse_name_in_itself(&self, dir: Ino, name: &[u8]) -> Error {
        match self.lookup(dir, name) {
            Ok(_) => Error::refused(errno::EEXIST, "the name exists"),
            Err(error) if error.errno() == errno::ENOENT => {
                Error::refused(errno::EPERM, "a directory has one name")
            }
            Err(error) => error,
        }
    }

    fn try_give_name(&self, file: &InodeRef, dir: &InodeRef, name: &[u8], anonymous: bool) -> Result<()> {
        let mut change = self.begin_taking(self.reservations.link, self.reservations.link_blocks())?;
        let [Some(mut dir), Some(mut child)] = lock_all([Some(dir), Some(file)]) else {
            return Err(Error::refused(errno::EPERM, "a directory has one name"));
        };
        expect_directory(&dir)?;
        let vacancy = change.vacancy(&mut dir, name)?;
        if is_directory(&child) {
            return Err(Error::refused(errno::EPERM, "a directory has one name"));
        }
        if child.nlink() == 0 && !anonymous {
            return Err(Error::refused(errno::ENOENT, "the file was removed"));
        }
        if child.nlink() >= MAX_LINKS {
            return Err(Error::refused(errno::EMLINK, "the file has as many names as it can"));
        }
        let ftype = FileType::from_mode(child.mode()).map_or(0, FileType::ftype);
        let ino = child.ino();
        let shared = self.table.shared();
        let nameless = child.nlink() == 0;
        // The AGI comes before the AGFs from which the name's directory may grow, and those before inode clusters.
        if nameless {
            inode::unlinked::lock(shared, &mut change.tx, ino)?;
        }
        change.add_parent(&mut child, Parent::of(&dir), name)?;
        change.directory(&mut dir, |dir| dir.add_at(vacancy, NewEntry { name, ino, ftype }))?;
        if nameless {
            inode::unlinked::remove(shared, &mut change.tx, &mut child)?;
        }
        let nlink = child.nlink() + 1;
        child.set_nlink(nlink);
        self.touch(&mut child, &[Time::Change]);
        self.touch(&mut dir, &[Time::Modify, Time::Change]);
        change.commit(&mut [&mut dir, &mut child])
    }
}
