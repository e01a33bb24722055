//! From a directory and a name to an inode.

use base::Ino;

use crate::operation::expect_directory;
use crate::{Handle, Result, Volume};

impl Volume {
    /// The root directory.
    pub fn root(&self) -> Ino {
        self.geometry.root
    }

    /// What a name stands for; `.` and `..` too. Another thread may remove the file at any time, and its number may
    /// then become another file's: [`lookup_handle`](Self::lookup_handle) keeps the file.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; damage.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let dir_ref = self.inode(dir)?;
        let mut reader = self.reader()?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        Ok(reader.find(&mut dir, name)?.ino)
    }

    /// The same with a reference, taken while the directory is locked: the file is the one that has the name, and it
    /// stays while the handle exists.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn lookup_handle(&self, dir: Ino, name: &[u8]) -> Result<Handle> {
        let dir_ref = self.inode(dir)?;
        let mut reader = self.reader()?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        let ino = reader.find(&mut dir, name)?.ino;
        if ino == dir.ino() {
            return Ok(Handle::of(dir_ref.clone()));
        }
        reader.named(&dir, name, ino).map(Handle::of)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` where it is none; damage.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let link = self.inode(ino)?;
        Ok(inode::symlink::read(self.inode_cache.shared(), &mut link.lock())?)
    }
}
