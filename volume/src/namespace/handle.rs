//! References to files, also to files without a name.

use base::{Ino, errno};
use format::inode::FileType;
use inode::{Inode, InodeRef};
pub use vfs::FileId;

use super::link::LinkSource;
use crate::permissions::Caller;
use crate::{Error, Result, Volume};

/// The identity of a file that is in use.
pub(crate) fn identity(inode: &Inode) -> FileId {
    FileId { ino: inode.ino(), generation: inode.generation() }
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
        identity(&self.0)
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

/// The identity of the file of an in-core inode; `None` if the inode may be free.
fn in_use(inode: &Inode) -> Option<FileId> {
    let has_names = || inode.published_stat().is_some_and(|stat| stat.nlink > 0);
    (inode.is_in_use() || has_names()).then(|| identity(inode))
}

impl Volume {
    /// Refuses a reference to a file of another volume.
    pub(crate) fn expect_own(&self, handle: &Handle) -> Result<()> {
        match self.inode_cache.has(handle.inode()) {
            true => Ok(()),
            false => Err(Error::refused(errno::EXDEV, "the file is in another volume")),
        }
    }

    /// The identity of the file that has an inode number now.
    ///
    /// # Errors
    /// `ENOENT` if the inode is free; damage.
    pub fn id_of(&self, ino: Ino) -> Result<FileId> {
        let known =
            self.inode_cache.read_cached(ino, |inode| (!inode.is_internal()).then(|| in_use(inode))?);
        known.map_or_else(|| Ok(identity(&*self.inode_at(ino)?)), Ok)
    }

    /// Whether a file is in memory and was not removed.
    pub(crate) fn is_cached(&self, id: FileId) -> bool {
        self.inode_cache.read_cached(id.ino, in_use) == Some(id)
    }

    /// Returns a reference to a file by its identity.
    ///
    /// # Errors
    /// `ESTALE` if the file was removed; damage.
    pub fn open_id(&self, id: FileId) -> Result<Handle> {
        self.inode(id).map(Handle)
    }

    /// The in-core inode of a file.
    pub(crate) fn inode(&self, id: FileId) -> Result<InodeRef> {
        const STALE: Error = Error::refused(errno::ESTALE, "the file was removed");
        let is_root = id.ino == self.geometry.root;
        match self.inode_at(id.ino) {
            // The root is never removed, and its generation is not known if it could not be read.
            Ok(inode) if is_root || inode.generation() == id.generation => Ok(inode),
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
    pub fn link_handle(&self, file: &Handle, dir: FileId, name: &[u8]) -> Result<()> {
        self.expect_own(file)?;
        self.add_link(Caller::PROGRAM, &file.0, &self.inode(dir)?, name, LinkSource::Handle)
    }
}
