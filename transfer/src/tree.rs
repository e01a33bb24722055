//! Paths below a directory of a volume.
//!
//! # Invariants
//! A path of a source does not lead outside of the directory, which is the root of its tree as in a chroot. Symlinks
//! are followed within it; `/` and excess `..` in a symlink lead to the root of the tree.

use base::errno;
use format::inode::FileType;
use volume::{FileId, Volume};

use crate::{Error, Result};

/// Maximum number of symlinks in a path, as in Linux.
const LINKS_MAX: u32 = 40;

/// A directory of a volume as the root of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree<'v> {
    pub volume: &'v Volume,
    pub root: FileId,
}

impl Tree<'_> {
    /// Resolves a path without following symlinks.
    ///
    /// # Errors
    /// `ENOENT`; `ENOTDIR`, also if a component is a symlink.
    pub fn literal(self, path: &[u8]) -> volume::Result<FileId> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.try_fold(self.root, |dir, name| self.volume.lookup(dir, name))
    }

    /// Resolves a path from a directory of the tree, following symlinks. `missing` is called for a missing name of the
    /// path itself, with its directory; a missing name of a symlink's target is an error.
    pub fn walk(
        self,
        from: FileId,
        path: &[u8],
        mut missing: impl FnMut(FileId, &[u8]) -> Result<FileId>,
    ) -> Result<FileId> {
        let failed = |error| Error::volume(path)(error);
        let mut remaining = names(path);
        let (mut dir, mut own, mut followed) = (from, remaining.len(), 0);
        while let Some(name) = remaining.pop() {
            let is_own = remaining.len() < own;
            own = own.min(remaining.len());
            let found = match name.as_slice() {
                b"." => continue,
                b".." if dir == self.root => continue,
                name => self.volume.lookup(dir, name),
            };
            let found = match found {
                Err(error) if error.errno() == errno::ENOENT && is_own => missing(dir, &name)?,
                Err(error) if error.errno() == errno::ENOENT => {
                    return Err(Error::invalid(path, "a symbolic link in its path is dangling"));
                }
                found => found.map_err(failed)?,
            };
            if self.volume.metadata(found).map_err(failed)?.file_type != FileType::Symlink {
                dir = found;
                continue;
            }
            followed += 1;
            if followed > LINKS_MAX {
                return Err(Error::invalid(path, "too many symbolic links in its path"));
            }
            let target = self.volume.read_link(found).map_err(failed)?;
            if target.first() == Some(&b'/') {
                dir = self.root;
            }
            remaining.append(&mut names(&target));
        }
        Ok(dir)
    }
}

/// The names of a path, in reverse order.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.rsplit(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

/// Whether a file that is changed later was not removed meanwhile.
pub(crate) fn exists(volume: &Volume, file: FileId) -> volume::Result<bool> {
    match volume.metadata(file) {
        Err(error) if error.errno() == errno::ESTALE => Ok(false),
        known => known.map(|_| true),
    }
}
