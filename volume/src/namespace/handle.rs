//! Holding a file that may lose its last name; files without one.

use base::Ino;
use format::inode::FileType;
use inode::InodeRef;

use super::create;
use super::inherit::Made;
use super::link::Naming;
use crate::attributes::Given;
use crate::new_file::{NewFile, NewFileType};
use crate::{Error, Result, Volume};

/// A hold on a file: while one exists, the file stays, even without a name.
#[derive(Clone, Debug)]
pub struct Handle(InodeRef);

impl Handle {
    /// The file's number.
    pub fn ino(&self) -> Ino {
        self.0.ino()
    }

    pub(crate) fn of(inode: InodeRef) -> Self {
        Self(inode)
    }

    /// Whether the inode says that it is of this type. What an entry says of it may be wrong in a damaged volume.
    pub(crate) fn is(&self, file_type: FileType) -> bool {
        FileType::from_mode(self.0.read().mode()) == Some(file_type)
    }

    pub(crate) fn inode(&self) -> &InodeRef {
        &self.0
    }
}

impl Volume {
    /// Holds a file.
    ///
    /// # Errors
    /// `ENOENT` where the inode is free.
    pub fn open_ino(&self, ino: Ino) -> Result<Handle> {
        Ok(Handle(self.inode(ino)?))
    }

    /// Makes a file without a name, as `O_TMPFILE` does: it takes from `dir` what a file made there would.
    ///
    /// # Errors
    /// `EISDIR` for a directory, `ENOTDIR`, `ENOSPC`.
    pub fn create_tmpfile(&self, dir: Ino, new: &NewFile<'_>) -> Result<Handle> {
        if !matches!(new.file_type, NewFileType::Regular) {
            return Err(Error::refused(base::errno::EINVAL, "only a regular file can be without a name"));
        }
        inode::inactive::throttle(self.inode_cache.shared());
        let dir = self.inode(dir)?;
        let by_parts = |given: &[Given<'_>]| self.nameless(&dir, (new, create::NO_DEVICE), given);
        let make = |with, given: &[Given<'_>]| {
            Ok(match self.try_nameless(&dir, (new, create::NO_DEVICE), (with, given))? {
                Made::Done((file, _)) => Made::Done(file),
                Made::Needs(with) => Made::Needs(with),
            })
        };
        self.beginning(new, make, by_parts).map(Handle)
    }

    /// Gives a file that is held a name; it may have none so far.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub fn link_handle(&self, file: &Handle, dir: Ino, name: &[u8]) -> Result<()> {
        self.give_name(&file.0, dir, name, Naming::Held)
    }
}
