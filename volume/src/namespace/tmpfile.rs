//! Files without names (`O_TMPFILE`): temporary files, and files that get a name when they are complete.
//!
//! Such a file is on an unlinked list from its creation, so that log recovery frees it after a crash. Programs create
//! and close many of them. So a new one is, if possible, an empty file that was closed on the same CPU and waits to be
//! freed: it is on its list already, and the transaction changes nothing but the inode. It may be in another AG than
//! the directory: files without names are not found by walking a directory.

use base::errno;
use format::inode::{FileType, S_IFMT};
use inode::{InodeRef, NewInode};

use super::create::set_requested_times;
use crate::attributes::NewAttribute;
use crate::new_file::{NewFile, NewFileType};
use crate::permissions::{Caller, SET_GID};
use crate::{Error, FileId, Handle, Result, Volume};

impl Volume {
    /// Creates a regular file without a name (`O_TMPFILE`). It inherits attributes from `dir` as a file created there
    /// does.
    ///
    /// # Errors
    /// `ESTALE`, `EINVAL` for other file types, `ENOTDIR`, `ENOSPC`.
    pub fn create_tmpfile(&self, dir: FileId, new: &NewFile<'_>) -> Result<Handle> {
        self.create_tmpfile_in(Caller::PROGRAM, &self.inode(dir)?, new).map(Handle::new)
    }

    /// Creates a regular file without a name for a caller.
    pub(crate) fn create_tmpfile_in(
        &self,
        caller: Caller<'_>,
        dir: &InodeRef,
        new: &NewFile<'_>,
    ) -> Result<InodeRef> {
        if !matches!(new.file_type, NewFileType::Regular) {
            return Err(Error::refused(errno::EINVAL, "only a regular file can be created without a name"));
        }
        inode::inactive::throttle(self.inode_cache.shared());
        if !caller.is_user()
            && let Some(file) = self.reuse_removed(dir, new)?
        {
            return Ok(file);
        }
        let create = |mode, requested: &[NewAttribute<'_>]| {
            Ok(self.try_create_unlinked(caller, dir, new, mode, requested)?.map(|(file, _)| file))
        };
        let create_in_steps =
            |requested: &[NewAttribute<'_>]| self.create_unlinked(caller, dir, new, requested);
        self.create_with_attributes(new, create, create_in_steps)
    }

    /// Creates a file without a name from one that waits to be freed, if there is one and the new file has and inherits
    /// no attributes. Does not lock the directory.
    fn reuse_removed(&self, dir: &InodeRef, new: &NewFile<'_>) -> Result<Option<InodeRef>> {
        let shared = self.inode_cache.shared();
        if !new.attributes.is_empty() || !shared.inactive.has_queued() {
            return Ok(None);
        }
        let stat = dir.stat();
        let is_plain_dir = FileType::from_mode(stat.mode) == Some(FileType::Directory)
            && stat.nlink > 0
            && stat.mode & SET_GID == 0
            && stat.is_plain;
        if !is_plain_dir {
            return Ok(None);
        }
        // Before an inode is locked.
        let operation = self.begin(self.reservations.inode)?;
        let mode = new.inode_type().mode() | new.masked_permissions() & !S_IFMT;
        let inode = NewInode { mode, uid: new.uid, gid: new.gid, nlink: 0, device: 0, parent: None };
        let Some((mut file, reference)) = self.inode_cache.reuse_removed(&inode) else { return Ok(None) };
        set_requested_times(&mut file, new);
        operation.commit(&mut [&mut file])?;
        Ok(Some(reference))
    }
}
