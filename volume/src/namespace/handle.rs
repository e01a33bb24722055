//! References to files, also to files without a name.

use base::{Ino, errno};
use format::inode::FileType;
use inode::InodeRef;

use super::link::LinkSource;
use crate::attributes::NewAttribute;
use crate::new_file::{NewFile, NewFileType};
use crate::{Error, Result, Volume};

/// A reference to a file. The file is not freed while it is referenced, even if it has no name.
#[derive(Clone, Debug)]
pub struct Handle(InodeRef);

impl Handle {
    pub(crate) fn new(inode: InodeRef) -> Self {
        Self(inode)
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino()
    }

    /// Whether the inode has this type. The type in a directory entry may differ in a damaged volume.
    pub(crate) fn is(&self, file_type: FileType) -> bool {
        FileType::from_mode(self.0.read().mode()) == Some(file_type)
    }

    pub(crate) fn inode(&self) -> &InodeRef {
        &self.0
    }
}

impl Volume {
    /// Returns a reference to a file by its inode number.
    ///
    /// # Errors
    /// `ENOENT` if the inode is free.
    pub fn open_ino(&self, ino: Ino) -> Result<Handle> {
        Ok(Handle(self.inode(ino)?))
    }

    /// Creates a regular file without a name (`O_TMPFILE`). It inherits attributes from `dir` as a file created there
    /// does.
    ///
    /// # Errors
    /// `EINVAL` for other file types, `ENOTDIR`, `ENOSPC`.
    pub fn create_tmpfile(&self, dir: Ino, new: &NewFile<'_>) -> Result<Handle> {
        if !matches!(new.file_type, NewFileType::Regular) {
            return Err(Error::refused(errno::EINVAL, "only a regular file can be created without a name"));
        }
        inode::inactive::throttle(self.inode_cache.shared());
        let dir = self.inode(dir)?;
        let create = |mode, requested: &[NewAttribute<'_>]| {
            Ok(self.try_create_unlinked(&dir, new, mode, requested)?.map(|(file, _)| file))
        };
        let create_in_steps = |requested: &[NewAttribute<'_>]| self.create_unlinked(&dir, new, requested);
        self.create_with_attributes(new, create, create_in_steps).map(Handle)
    }

    /// Adds a name to a referenced file, which may have none so far.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub fn link_handle(&self, file: &Handle, dir: Ino, name: &[u8]) -> Result<()> {
        self.add_link(&file.0, dir, name, LinkSource::Handle)
    }
}
