//! References to files, also to files without a name.

use base::{Ino, errno};
use format::inode::FileType;
use inode::InodeRef;

use super::link::LinkSource;
use crate::permissions::Caller;
use crate::{Error, Result, Volume};

/// The identity of a file, for programs that address files over a longer time, as NFS servers do. An inode number alone
/// may be another file's by the time it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Inode number.
    pub ino: Ino,
    /// Generation: differs between files that use the same inode number one after the other.
    pub generation: u32,
}

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

    /// The identity of the file, which remains valid while the file exists, also when the volume is opened again.
    pub fn id(&self) -> FileId {
        FileId { ino: self.0.ino(), generation: self.0.generation() }
    }

    /// Whether the inode has this type. The type in a directory entry may differ in a damaged volume.
    pub(crate) fn is(&self, file_type: FileType) -> bool {
        self.0.file_type() == Some(file_type)
    }

    pub(crate) fn inode(&self) -> &InodeRef {
        &self.0
    }

    pub(crate) fn into_inode(self) -> InodeRef {
        self.0
    }
}

impl Volume {
    /// Refuses a reference to a file of another volume.
    pub(crate) fn expect_own(&self, handle: &Handle) -> Result<()> {
        match self.inode_cache.has(handle.inode()) {
            true => Ok(()),
            false => Err(Error::refused(errno::EXDEV, "the file is in another volume")),
        }
    }

    /// Returns a reference to a file by its inode number.
    ///
    /// # Errors
    /// `ENOENT` if the inode is free.
    pub fn open_ino(&self, ino: Ino) -> Result<Handle> {
        Ok(Handle(self.inode(ino)?))
    }

    /// Returns a reference to a file by its identity.
    ///
    /// # Errors
    /// `ESTALE` if the file was removed; damage.
    pub fn open_id(&self, id: FileId) -> Result<Handle> {
        const STALE: Error = Error::refused(errno::ESTALE, "the file was removed");
        match self.inode(id.ino) {
            Ok(inode) if inode.generation() == id.generation => Ok(Handle(inode)),
            Ok(_) => Err(STALE),
            Err(error) if error.errno() == errno::ENOENT => Err(STALE),
            Err(error) => {
                // The chunk of the inode may have been removed, too. That is damage only if a directory refers to it.
                let chunk = self.groups.chunk_inodes(&mut self.reader()?.tx, id.ino)?;
                let exists = chunk.is_some_and(|chunk| chunk.inodes().any(|ino| ino == id.ino));
                Err(if exists { error } else { STALE })
            }
        }
    }

    /// Adds a name to a referenced file, which may have none so far.
    ///
    /// # Errors
    /// `EXDEV` for a file of another volume; as [`link`](Self::link).
    pub fn link_handle(&self, file: &Handle, dir: Ino, name: &[u8]) -> Result<()> {
        self.expect_own(file)?;
        self.add_link(Caller::PROGRAM, &file.0, &self.inode(dir)?, name, LinkSource::Handle)
    }
}
