//! Further names.

use base::{Ino, errno};
use format::inode::FileType;
use inode::InodeRef;
use inode::dir::NewEntry;
use inode::state::InodeTime;

use super::create::MAX_LINKS;
use super::order::lock_all;
use super::parents::Parent;
use crate::checks::{expect_changeable, expect_mutable, expect_same_project};
use crate::operation::{Locked, expect_directory, is_directory, is_dots};
use crate::{Error, Result, Volume};

/// Which file gets a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// One that has names.
    Further,
    /// One that may have none so far.
    Held,
    /// One that is made with this name.
    New,
}

impl Volume {
    /// Gives a file another name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, and where the file or the name's directory is immutable or the file may only
    /// be appended to; `EXDEV` where the directory hands another project down; `ENOENT` where the file has lost its
    /// last name, `EMLINK`, `ENOSPC`.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        let file = self.inode(ino)?;
        self.give_name(&file, dir, name, Naming::Further)
    }

    /// Gives a file that is being made its name. A directory is in this one already.
    pub(super) fn name_new(&self, file: &InodeRef, dir: &InodeRef, name: &[u8]) -> Result<()> {
        self.retry_on_enospc(|| self.try_give_name(file, dir, name, Naming::New))
    }

    /// Gives a file a name.
    pub(super) fn give_name(&self, file: &InodeRef, dir: Ino, name: &[u8], naming: Naming) -> Result<()> {
        if is_dots(name) {
            return Err(self.refuse_dots(dir, errno::EEXIST, "the name exists"));
        }
        let dir_ref = self.inode(dir)?;
        if file.ino() == dir {
            return Err(self.refuse_name_in_itself(dir, name));
        }
        self.retry_on_enospc(|| self.try_give_name(file, &dir_ref, name, naming))
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

    fn try_give_name(&self, file: &InodeRef, dir: &InodeRef, name: &[u8], naming: Naming) -> Result<()> {
        let mut change = self.begin_with_blocks(self.reservations.link, self.reservations.link_blocks())?;
        let [Some(mut dir), Some(mut child)] = lock_all([Some(dir), Some(file)]) else {
            return Err(Error::refused(errno::EPERM, "a directory has one name"));
        };
        expect_directory(&dir)?;
        let insert_slot = change.insert_slot(&mut dir, name)?;
        expect_mutable(&dir)?;
        let is_dir = is_directory(&child);
        if naming != Naming::New {
            expect_nameable(&child, naming)?;
        }
        if is_dir && dir.nlink() >= MAX_LINKS {
            return Err(Error::refused(errno::EMLINK, "the directory has as many directories as it can"));
        }
        if child.nlink() >= MAX_LINKS {
            return Err(Error::refused(errno::EMLINK, "the file has as many names as it can"));
        }
        if naming != Naming::New {
            expect_same_project(&dir, &child)?;
        }
        let ftype = FileType::from_mode(child.mode()).map_or(0, FileType::ftype);
        let ino = child.ino();
        let shared = self.inode_cache.shared();
        let nameless = child.nlink() == 0;
        // The AGI comes before the AGFs from which the name's directory may grow, and those before inode clusters.
        if nameless {
            inode::unlinked::lock(shared, &mut change.tx, ino)?;
        }
        change.add_parent(&mut child, Parent::of(&dir), name)?;
        change.directory(&mut dir, |dir| dir.add_at(insert_slot, NewEntry { name, ino, ftype }))?;
        if nameless {
            inode::unlinked::remove(shared, &mut change.tx, &mut child)?;
        }
        // A directory's own `.` counts, and its `..` for the one that it is in.
        let nlink = child.nlink() + if is_dir { 2 } else { 1 };
        child.set_nlink(nlink);
        if is_dir {
            let nlink = dir.nlink() + 1;
            dir.set_nlink(nlink);
        }
        self.touch(&mut child, &[InodeTime::Change]);
        self.touch(&mut dir, &[InodeTime::Modify, InodeTime::Change]);
        change.commit(&mut [&mut dir, &mut child])
    }
}

/// Refuses a file that cannot have a further name.
fn expect_nameable(file: &Locked, naming: Naming) -> Result<()> {
    expect_changeable(file)?;
    if is_directory(file) {
        return Err(Error::refused(errno::EPERM, "a directory has one name"));
    }
    if file.nlink() == 0 && naming == Naming::Further {
        return Err(Error::refused(errno::ENOENT, "the file was removed"));
    }
    Ok(())
}
