//! Paths below a directory of a volume.
//!
//! # Invariants
//! A path of a source leads nowhere else: the directory is the root of its tree, as for a process in a chroot. Symbolic
//! links are followed within it, whoever made them; `/` and too many `..` in a link end at the root of the tree.

use base::{Ino, errno};
use format::inode::FileType;
use volume::Volume;

use crate::{Error, Result};

/// How many symbolic links a path may go through, as in Linux.
const LINKS_MAX: u32 = 40;

/// A directory of a volume as the root of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree<'v> {
    pub volume: &'v Volume,
    pub root: Ino,
}

impl Tree<'_> {
    /// What a path stands for if no link in it is followed.
    ///
    /// # Errors
    /// `ENOENT`; `ENOTDIR`, also where a link is on the way.
    pub fn literal(self, path: &[u8]) -> volume::Result<Ino> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.try_fold(self.root, |dir, name| self.volume.lookup(dir, name))
    }

    /// Where names lead, from a directory of the tree; links are followed. Where one of the names is missing, `missing`
    /// is asked, with its directory; where that of a link's target is, it is an error.
    pub fn walk(
        self,
        from: Ino,
        path: &[u8],
        mut missing: impl FnMut(Ino, &[u8]) -> Result<Ino>,
    ) -> Result<Ino> {
        let failed = |error| Error::volume(path)(error);
        let mut left = names(path);
        let (mut at, mut own, mut followed) = (from, left.len(), 0);
        while let Some(name) = left.pop() {
            let is_own = left.len() < own;
            own = own.min(left.len());
            let found = match name.as_slice() {
                b"." => continue,
                b".." if at == self.root => continue,
                name => self.volume.lookup(at, name),
            };
            let found = match found {
                Err(error) if error.errno() == errno::ENOENT && is_own => missing(at, &name)?,
                Err(error) if error.errno() == errno::ENOENT => {
                    return Err(Error::bad(path, "a symbolic link in its path leads to nothing in the tree"));
                }
                found => found.map_err(failed)?,
            };
            if self.volume.metadata(found).map_err(failed)?.file_type != FileType::Symlink {
                at = found;
                continue;
            }
            followed += 1;
            if followed > LINKS_MAX {
                return Err(Error::bad(path, "too many symbolic links in its path"));
            }
            let target = self.volume.read_link(found).map_err(failed)?;
            if target.first() == Some(&b'/') {
                at = self.root;
            }
            left.append(&mut names(&target));
        }
        Ok(at)
    }
}

/// The names of a path, the last first.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.rsplit(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}
