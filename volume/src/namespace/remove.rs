//! Taking names away.

use base::Ino;
use base::errno::{self, Errno};
use inode::state::InodeTime;

use super::order::{Named, lock_named};
use super::parents::Parent;
use crate::checks::expect_changeable;
use crate::operation::{Locked, Operation, is_directory, is_dots};
use crate::{Error, Result, Volume};

impl Volume {
    /// Takes a name away from a file. With its last name, and when nobody holds it any more, the file goes.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOTDIR`; `EPERM` where the directory or the file is immutable or may only be appended to.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(dir, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`; `EINVAL` for `.` and `ENOTEMPTY` for `..`; `EPERM` as
    /// [`unlink`](Self::unlink).
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => {
                let why = "a directory cannot be removed by the name \".\"";
                Err(self.refuse_dots(dir, errno::EINVAL, why))
            }
            b".." => Err(self.refuse_dots(dir, errno::ENOTEMPTY, "the directory is not empty")),
            _ => self.remove(dir, name, true),
        }
    }

    fn remove(&self, dir: Ino, name: &[u8], directory: bool) -> Result<()> {
        if is_dots(name) {
            return Err(self.refuse_dots(dir, errno::EISDIR, "is a directory"));
        }
        inode::inactive::throttle(self.inode_cache.shared());
        let dir_ref = self.inode(dir)?;
        let mut change = self.begin_freeing(self.reservations.remove, self.reservations.link_blocks())?;
        let Named { mut dir, mut child, child_ref, place } = lock_named(&mut change, &dir_ref, name)?;
        expect_changeable(&dir)?;
        expect_changeable(&child)?;
        match (directory, is_directory(&child)) {
            (false, true) => return Err(Error::refused(errno::EISDIR, "is a directory")),
            (true, false) => return Err(Error::refused(errno::ENOTDIR, "not a directory")),
            _ => {}
        }
        if directory {
            expect_empty(&mut change, &mut child, errno::ENOTEMPTY)?;
        }
        // The AGI comes before the AGFs from which a tree of extents may grow as blocks go out of its middle.
        if directory || child.nlink() <= 1 {
            inode::unlinked::lock(self.inode_cache.shared(), &mut change.tx, child.ino())?;
        }
        change.remove_parent(&mut child, Parent::of(&dir), name)?;
        change.directory(&mut dir, |dir| dir.remove_at(place, name))?;
        if directory {
            let nlink = dir.nlink().saturating_sub(1);
            dir.set_nlink(nlink);
        }
        change.drop_link(&mut child, directory)?;
        self.touch(&mut dir, &[InodeTime::Modify, InodeTime::Change]);
        change.commit(&mut [&mut dir, &mut child])?;
        drop((child, dir));
        // The last hold: an orphan goes to inactivation now, with no lock held.
        drop(child_ref);
        Ok(())
    }
}

impl Operation<'_> {
    /// An inode loses a name; a directory loses its own `.` with it. Without any, it is put on the list of unlinked
    /// inodes.
    pub(super) fn drop_link(&mut self, child: &mut Locked, directory: bool) -> Result<()> {
        let nlink = if directory { 0 } else { child.nlink().saturating_sub(1) };
        child.set_nlink(nlink);
        self.volume.touch(child, &[InodeTime::Change]);
        if nlink == 0 {
            inode::unlinked::insert(self.volume.inode_cache.shared(), &mut self.tx, child)?;
        }
        Ok(())
    }
}

/// Refuses a directory that has entries, with the errno that Linux has for it: removing differs from renaming.
pub(super) fn expect_empty(change: &mut Operation<'_>, dir: &mut Locked, errno: Errno) -> Result<()> {
    let empty = change.directory(dir, |dir| dir.is_empty())?;
    change.tx.release_clean();
    if empty { Ok(()) } else { Err(Error::refused(errno, "the directory is not empty")) }
}
