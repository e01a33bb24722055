//! Metadata of files by paths, and the paths of files.

use std::collections::HashSet;

use base::errno;
use format::Damage;
use format::inode::FileType;

use super::resolve::{LastName, Scope, expect_path};
use super::{AsPath, Dir};
use crate::operation::{is_dots, no_such_file, not_a_directory};
use crate::recover::damaged;
use crate::{DirEntry, Handle, Metadata, Result, SetMetadata};

impl Dir<'_> {
    /// Returns the metadata of a file. Symbolic links are followed. If the names are in memory, this takes no lock, and
    /// stores to no memory that other threads use.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`; `EACCES` if the caller must not search a directory of the path;
    /// damage.
    pub fn metadata(&self, path: impl AsPath) -> Result<Metadata> {
        self.stat(path.as_path(), true)
    }

    /// Returns the metadata of a file, or of a symbolic link.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub fn symlink_metadata(&self, path: impl AsPath) -> Result<Metadata> {
        self.stat(path.as_path(), false)
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Metadata> {
        let path = expect_path(path)?;
        match self.volume.metadata_cached(self.beginning_in_memory(path), path, follow) {
            Some(known) => known,
            None => self.volume.metadata_of(self.look_up(path, follow)?.inode()),
        }
    }

    /// Returns the metadata of several files, in the order of their paths. Symbolic links are not followed. If paths
    /// with the same directories come one after the other, as in a sorted list, the directories are walked once.
    ///
    /// # Errors
    /// Of each file, as [`metadata`](Self::metadata).
    pub fn stat_many<P: AsPath>(&self, paths: impl IntoIterator<Item = P>) -> Vec<Result<Metadata>> {
        let paths: Vec<P> = paths.into_iter().collect();
        let paths: Vec<&[u8]> = paths.iter().map(AsPath::as_path).collect();
        let mut results = Vec::with_capacity(paths.len());
        while let Some(rest @ [first, ..]) = paths.get(results.len()..) {
            let from = self.beginning_in_memory(first);
            if let Some(from) = from {
                let is_absolute = |path: &[u8]| path.first() == Some(&b'/');
                // Where a path begins is not found out in the read section.
                let rest = rest.iter().take_while(|path| is_absolute(path) == is_absolute(first));
                self.volume.add_metadata_cached(from, rest.copied(), &mut results);
            }
            // One that is not in memory.
            if let Some(path) = paths.get(results.len()) {
                results.push(self.stat(path, false));
            }
        }
        results
    }

    /// Whether a path leads to a file. Symbolic links are followed.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata), but for `ENOENT` and `ENOTDIR`.
    pub fn try_exists(&self, path: impl AsPath) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.errno(), errno::ENOENT | errno::ENOTDIR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes the metadata of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata); `EPERM` for an immutable or append-only file, and for changes that only the
    /// owner or root may make; `EACCES`.
    pub fn set_metadata(&self, path: impl AsPath, set: &SetMetadata) -> Result<()> {
        let file = self.find(expect_path(path.as_path())?, true)?;
        self.volume.set_metadata_of(self.caller(), file.inode(), set)
    }

    /// Changes the metadata of a file, or of a symbolic link.
    ///
    /// # Errors
    /// As [`set_metadata`](Self::set_metadata).
    pub fn set_symlink_metadata(&self, path: impl AsPath, set: &SetMetadata) -> Result<()> {
        let file = self.find(expect_path(path.as_path())?, false)?;
        self.volume.set_metadata_of(self.caller(), file.inode(), set)
    }

    /// Changes the permission bits of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// As [`set_metadata`](Self::set_metadata).
    pub fn set_permissions(&self, path: impl AsPath, permissions: u16) -> Result<()> {
        self.set_metadata(path, &SetMetadata { permissions: Some(permissions), ..SetMetadata::default() })
    }

    pub(super) fn set_permissions_of(&self, file: &Handle, permissions: u16) -> Result<()> {
        let set = SetMetadata { permissions: Some(permissions), ..SetMetadata::default() };
        self.volume.set_metadata_of(self.caller(), file.inode(), &set)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for other files; as [`metadata`](Self::metadata).
    pub fn read_link(&self, path: impl AsPath) -> Result<Vec<u8>> {
        let link = self.find(expect_path(path.as_path())?, false)?;
        self.volume.read_link_of(link.inode())
    }

    /// Returns the path of a file without symbolic links, `.` and `..`. It is absolute in [`Scope::Volume`] and
    /// [`Scope::InRoot`], and relative to this directory in [`Scope::Beneath`], so that this `Dir` resolves it.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata). `ENOENT` also if a directory of the path is moved meanwhile.
    pub fn canonicalize(&self, path: impl AsPath) -> Result<Vec<u8>> {
        let mut walker = self.walker();
        let path = expect_path(path.as_path())?;
        let mut at = walker.last_name(path)?;
        loop {
            if is_dots(&at.name) {
                // The walk so far has found all symbolic links; what is left is the parent, or the directory itself.
                let dir = self.walker().resolve(path, true)?;
                return self.path_of(&dir, Vec::new());
            }
            let file = self.volume.lookup_in(at.dir.inode(), &at.name)?;
            if file.is(FileType::Symlink) {
                let asks_for_dir = at.must_be_dir;
                at = walker.last_name_of_link(&at.dir, &file)?;
                at.must_be_dir |= asks_for_dir;
                continue;
            }
            let LastName { dir, name, must_be_dir } = at;
            if must_be_dir && !file.is(FileType::Directory) {
                return Err(not_a_directory());
            }
            return self.path_of(&dir, vec![name.into_owned()]);
        }
    }

    /// The path of a directory with names after it, the last one first.
    fn path_of(&self, dir: &Handle, mut names: Vec<Vec<u8>>) -> Result<Vec<u8>> {
        let top = match self.resolve.scope {
            Scope::Volume => self.volume.root().ino,
            Scope::Beneath | Scope::InRoot => self.ino(),
        };
        let (mut current, mut visited) = (dir.clone(), HashSet::new());
        while current.ino() != top {
            if !visited.insert(current.ino()) {
                let damage = Damage::new("directory", "..", "a path to the root", "a cycle");
                return Err(damaged(current.ino(), damage));
            }
            let parent = self.volume.lookup_in(current.inode(), b"..")?;
            let is_current = |entry: &DirEntry<'_>| entry.ino == current.ino() && !is_dots(entry.name);
            let found = self.volume.find_name(parent.inode(), is_current)?;
            names.push(found.ok_or_else(no_such_file)?);
            current = parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Ok(match self.resolve.scope {
            Scope::Beneath if path.is_empty() => b".".to_vec(),
            Scope::Beneath => path.split_off(1),
            _ if path.is_empty() => b"/".to_vec(),
            _ => path,
        })
    }
}
