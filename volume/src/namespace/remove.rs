//! `unlink` and `rmdir`.

use base::errno::{self, Errno};
use inode::state::{InodeState, InodeTime};
use inode::{InodeRef, LockedInode};

use super::lock_order::{LockedEntry, lock_entry};
use super::parent_pointers::Parent;
use crate::checks::{expect_changeable, expect_mutable, expect_not_append_only};
use crate::operation::{Operation, is_directory, is_dots};
use crate::permissions::{Caller, EXECUTE, WRITE};
use crate::{Error, FileId, Handle, Result, Volume, WatchEvent};

impl Volume {
    /// Removes a name of a file that is not a directory. A file without names is freed when it is no longer referenced.
    ///
    /// # Errors
    /// `ESTALE`, `ENOENT`, `EISDIR`, `ENOTDIR`; `EPERM` if the directory or the file is immutable or append-only.
    pub fn unlink(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.unlink_in(Caller::PROGRAM, &self.inode(dir)?, name).map(drop)
    }

    /// Like [`unlink`](Self::unlink), and returns a reference to the file if it has lost its last name.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink).
    pub fn unlink_handle(&self, dir: FileId, name: &[u8]) -> Result<Option<Handle>> {
        Ok(self.unlink_in(Caller::PROGRAM, &self.inode(dir)?, name)?.map(Handle::new))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ESTALE`, `ENOENT`, `ENOTDIR`, `ENOTEMPTY`; `EINVAL` for `.` and `ENOTEMPTY` for `..`; `EPERM` as
    /// [`unlink`](Self::unlink).
    pub fn rmdir(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.rmdir_in(Caller::PROGRAM, &self.inode(dir)?, name).map(drop)
    }

    /// Like [`rmdir`](Self::rmdir), and returns a reference to the directory.
    ///
    /// # Errors
    /// As [`rmdir`](Self::rmdir).
    pub fn rmdir_handle(&self, dir: FileId, name: &[u8]) -> Result<Option<Handle>> {
        Ok(self.rmdir_in(Caller::PROGRAM, &self.inode(dir)?, name)?.map(Handle::new))
    }

    /// Removes a name of a file for a caller. Returns the file if it was the last name.
    pub(crate) fn unlink_in(
        &self,
        caller: Caller<'_>,
        dir: &InodeRef,
        name: &[u8],
    ) -> Result<Option<InodeRef>> {
        self.remove(caller, dir, name, false)
    }

    /// Removes an empty directory for a caller, and returns it.
    pub(crate) fn rmdir_in(
        &self,
        caller: Caller<'_>,
        dir: &InodeRef,
        name: &[u8],
    ) -> Result<Option<InodeRef>> {
        match name {
            b"." => {
                let why = "a directory cannot be removed by the name \".\"";
                Err(self.refuse_dots(dir, errno::EINVAL, why))
            }
            b".." => Err(self.refuse_dots(dir, errno::ENOTEMPTY, "the directory is not empty")),
            _ => self.remove(caller, dir, name, true),
        }
    }

    /// Returns the file if it was its last name. If that is the last reference, the file goes to inactivation when it
    /// is dropped, which must not happen with a lock held.
    fn remove(
        &self,
        caller: Caller<'_>,
        dir_ref: &InodeRef,
        name: &[u8],
        expect_dir: bool,
    ) -> Result<Option<InodeRef>> {
        if is_dots(name) {
            return Err(self.refuse_dots(dir_ref, errno::EISDIR, "is a directory"));
        }
        inode::inactive::throttle(self.inode_cache.shared());
        let mut operation = self.begin_freeing(self.reservations.remove, self.reservations.link_blocks())?;
        let LockedEntry { mut dir, mut child, child_ref, position } =
            lock_entry(&mut operation, dir_ref, name)?;
        operation.expect_removable(caller, &mut dir, &child)?;
        expect_changeable(&child)?;
        match (expect_dir, is_directory(&child)) {
            (false, true) => return Err(Error::refused(errno::EISDIR, "is a directory")),
            (true, false) => return Err(Error::refused(errno::ENOTDIR, "not a directory")),
            (true, true) => operation.expect_empty(&mut child, errno::ENOTEMPTY)?,
            (false, false) => {}
        }
        // Lock order: the AGI before the AGFs. Removing blocks from the middle of an extent map may allocate blocks.
        if expect_dir || child.nlink() <= 1 {
            inode::unlinked::lock(self.inode_cache.shared(), &mut operation.tx, child.ino())?;
        }
        operation.remove_parent(&mut child, Parent::of(&dir), name)?;
        operation.remove_entry(&mut dir, position, name)?;
        operation.report(&mut dir, name, &child, WatchEvent::Removed);
        if expect_dir {
            let nlink = dir.nlink().saturating_sub(1);
            dir.set_nlink(nlink);
        }
        operation.drop_link(&mut child, expect_dir)?;
        self.touch(&mut dir, &[InodeTime::Modify, InodeTime::Change]);
        operation.commit(&mut [&mut dir, &mut child])?;
        let is_removed = child.nlink() == 0;
        drop((child, dir));
        Ok(is_removed.then_some(child_ref))
    }
}

impl Operation<'_> {
    /// Refuses to remove an entry, or to make it refer to another file, if the flags of the directory forbid it, or its
    /// permissions for the caller. The flags of the file come next.
    pub(super) fn expect_removable(
        &mut self,
        caller: Caller<'_>,
        dir: &mut LockedInode,
        child: &InodeState,
    ) -> Result<()> {
        expect_mutable(dir)?;
        self.expect_permitted(caller, dir, WRITE | EXECUTE)?;
        expect_not_append_only(dir)?;
        caller.expect_not_sticky(dir, child)
    }

    /// Decrements the link count of a file that lost a name; that of a directory becomes 0. A file without links is put
    /// on an unlinked list.
    pub(super) fn drop_link(&mut self, child: &mut LockedInode, is_dir: bool) -> Result<()> {
        if is_dir {
            self.volume.names.changing(child, b"..");
        }
        let nlink = if is_dir { 0 } else { child.nlink().saturating_sub(1) };
        child.set_nlink(nlink);
        self.volume.touch(child, &[InodeTime::Change]);
        if nlink == 0 {
            inode::unlinked::insert(self.volume.inode_cache.shared(), &mut self.tx, child)?;
        }
        if is_dir {
            self.report_removed(child);
        }
        Ok(())
    }

    /// Refuses a directory that has entries. As in Linux, the errno differs between removing and renaming.
    pub(super) fn expect_empty(&mut self, dir: &mut LockedInode, errno: Errno) -> Result<()> {
        let is_empty = self.directory(dir, |dir| dir.is_empty())?;
        self.tx.release_clean();
        if is_empty { Ok(()) } else { Err(Error::refused(errno, "the directory is not empty")) }
    }
}
