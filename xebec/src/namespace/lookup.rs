//! From a directory and a name to an inode.

use base::Ino;

use crate::change::expect_directory;
use crate::{Result, Volume};

impl Volume {
    /// The root directory.
    pub fn root(&self) -> Ino {
        self.geometry.root
    }

    /// What a name stands for; `.` and `..` too.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; damage.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let dir_ref = self.inode(dir)?;
        let mut look = self.look()?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        Ok(look.find(&mut dir, name)?.ino)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` where it is none; damage.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let link = self.inode(ino)?;
        Ok(inode::symlink::read(self.table.shared(), &mut link.lock())?)
    }
}
