//! Path resolution within a volume.

use base::Ino;
use base::errno::{self, Errno};
use format::inode::FileType;

use crate::dir;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::symlink::read_link;
use crate::volume::Volume;

/// Maximum number of symlinks followed, as in Linux.
const MAX_LINKS: u32 = 40;
/// Maximum length of a path in bytes, as in Linux.
const MAX_PATH: usize = 4096;

/// What to do with a symlink at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalSymlink {
    /// Follow it.
    Follow,
    /// Return the symlink itself, unless the path ends with a slash.
    Keep,
}

/// Resolves a path from the root of the volume. A leading slash is optional; `..` at the root is the root; absolute
/// symlinks are resolved from the root of the volume, so that no path leads out of it.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, damage, and what the device reports.
pub fn resolve(volume: &Volume, path: &[u8], last: FinalSymlink) -> Result<Inode> {
    let mut walk = Walk { volume, path, parents: Vec::new(), inode: volume.inode(volume.root())?, links: 0 };
    walk.run(last)?;
    Ok(walk.inode)
}

struct Walk<'w> {
    volume: &'w Volume,
    /// The path of the caller, for messages.
    path: &'w [u8],
    /// The parent directories of `inode`, from the root.
    parents: Vec<Ino>,
    inode: Inode,
    links: u32,
}

impl Walk<'_> {
    fn run(&mut self, last: FinalSymlink) -> Result<()> {
        if self.path.len() > MAX_PATH {
            return Err(self.fail(errno::ENAMETOOLONG, "the path is too long"));
        }
        // The path and the targets of symlinks, with the offset of the next component; the innermost target is last.
        let mut pending = vec![(self.path.to_vec(), 0)];
        while let Some((path, offset)) = pending.last_mut() {
            let rest = path.get(*offset..).unwrap_or(&[]);
            let skip = rest.iter().take_while(|byte| **byte == b'/').count();
            let rest = rest.get(skip..).unwrap_or(&[]);
            let length = rest.iter().take_while(|byte| **byte != b'/').count();
            let (component, rest) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            if component.is_empty() {
                pending.pop();
                if skip > 0 {
                    self.ensure_directory()?;
                }
                continue;
            }
            let component = component.to_vec();
            let is_end = rest.is_empty();
            *offset += skip + length;
            let keep = last == FinalSymlink::Keep && is_end && pending.len() == 1;
            if let Some(target) = self.step(&component, keep)? {
                pending.push((target, 0));
            }
        }
        Ok(())
    }

    /// Resolves one component. Returns the target of a symlink that must be followed.
    fn step(&mut self, component: &[u8], keep_link: bool) -> Result<Option<Vec<u8>>> {
        self.ensure_directory()?;
        match component {
            b"." => return Ok(None),
            b".." => {
                if let Some(parent) = self.parents.pop() {
                    self.inode = self.volume.inode(parent)?;
                }
                return Ok(None);
            }
            _ if component.len() > 255 => {
                return Err(self.fail(errno::ENAMETOOLONG, "a name in the path is too long"));
            }
            _ => {}
        }
        let entry = dir::lookup(self.volume, &self.inode.dinode(), component)?
            .ok_or_else(|| self.fail(errno::ENOENT, "no such file or directory"))?;
        let next = self.volume.inode(entry.ino)?;
        if next.dinode().file_type() == Some(FileType::Symlink) && !keep_link {
            self.links += 1;
            if self.links > MAX_LINKS {
                return Err(self.fail(errno::ELOOP, "too many symbolic links"));
            }
            let target = read_link(self.volume, &next.dinode())?;
            if target.first() == Some(&b'/') {
                self.parents.clear();
                self.inode = self.volume.inode(self.volume.root())?;
            }
            return Ok(Some(target));
        }
        self.parents.push(self.inode.ino());
        self.inode = next;
        Ok(None)
    }

    fn ensure_directory(&self) -> Result<()> {
        if self.inode.dinode().file_type() == Some(FileType::Directory) {
            return Ok(());
        }
        Err(self.fail(errno::ENOTDIR, "not a directory"))
    }

    #[cold]
    fn fail(&self, errno: Errno, reason: &str) -> Error {
        Error::unfit(errno, format!("{}: {reason}", self.path.escape_ascii()))
    }
}
