//! Lookup of names in a directory, and of the targets of symbolic links.

use inode::InodeRef;

use crate::names::Start;
use crate::operation::{expect_directory, no_such_file};
use crate::{FileId, Handle, Metadata, Result, Volume};

impl Volume {
    /// The root directory. If it is damaged, the calls that use it say so.
    pub fn root(&self) -> FileId {
        let known = || self.names.root();
        let root = known().or_else(|| self.root_handle().ok().and_then(|_| known()));
        root.unwrap_or(FileId { ino: self.geometry.root, generation: 0 })
    }

    /// Looks up a name in a directory; also `.` and `..`. Another thread may remove the file at any time:
    /// [`lookup_handle`](Self::lookup_handle) keeps a reference.
    ///
    /// # Errors
    /// `ESTALE`, `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; damage.
    pub fn lookup(&self, dir: FileId, name: &[u8]) -> Result<FileId> {
        let look_up = || Ok(self.lookup_in(&self.inode(dir)?, name)?.id());
        self.lookup_id_cached(dir, name).unwrap_or_else(look_up)
    }

    /// Looks up a name and returns a reference to the file, which the name had at some moment of the call. The result
    /// is kept in memory, also if the name does not exist: then the next lookup does not wait for the directory's lock.
    ///
    /// # Errors
    /// `ESTALE`, `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; damage.
    pub fn lookup_handle(&self, dir: FileId, name: &[u8]) -> Result<Handle> {
        self.lookup_handle_cached(dir, name).unwrap_or_else(|| self.lookup_in(&self.inode(dir)?, name))
    }

    /// Looks up a name and returns the metadata of the file, which had the name at some moment of the call. Another
    /// thread may remove the file at any time. Takes no reference to a file whose name is in memory.
    ///
    /// # Errors
    /// `ESTALE`, `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; damage.
    pub fn lookup_metadata(&self, dir: FileId, name: &[u8]) -> Result<Metadata> {
        if let Some(known) = self.lookup_metadata_cached(dir, name) {
            return known;
        }
        self.handle_metadata(&self.lookup_in(&self.inode(dir)?, name)?)
    }

    /// Looks up a name in a directory to which the caller has a reference.
    pub(crate) fn lookup_in(&self, dir_ref: &InodeRef, name: &[u8]) -> Result<Handle> {
        if !name.contains(&b'/')
            && let Some(known) = self.resolve_cached(Some(Start::of_program(dir_ref)), name, false)
        {
            return known;
        }
        let mut reader = self.reader()?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        let file = match reader.lookup(&mut dir, name)? {
            Some(found) if found.ino == dir.ino() => {
                // `.`, or the parent of the root.
                self.names.add(&dir, name, Some(dir_ref));
                return Ok(Handle::new(dir_ref.clone()));
            }
            Some(found) => Some(reader.entry_inode(&dir, name, found.ino)?),
            None => None,
        };
        let inode = file.as_deref();
        debug_assert!(
            self.log.shut_down_cause().is_some() || self.names.agrees(&dir, name, inode),
            "a stale dentry"
        );
        self.names.add(&dir, name, inode);
        file.map(Handle::new).ok_or_else(no_such_file)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `ESTALE`, `EINVAL` for other files; damage.
    pub fn read_link(&self, link: FileId) -> Result<Vec<u8>> {
        self.read_link_of(&self.inode(link)?)
    }

    /// Returns the target of a symbolic link to which the caller has a reference.
    pub(crate) fn read_link_of(&self, link: &InodeRef) -> Result<Vec<u8>> {
        let shared = self.inode_cache.shared();
        match inode::symlink::peek(shared, link) {
            Some(target) => Ok(target),
            None => Ok(inode::symlink::read(shared, &mut link.lock())?),
        }
    }
}
