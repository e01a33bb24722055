//! Operations by path. Paths are absolute, with or without a leading slash; symbolic links are resolved within the
//! volume.

use std::collections::HashSet;

use base::{Ino, errno};
use format::damage::Damage;
use format::inode::FileType;

use crate::dir::{Resolve, Walker, split_last};
use crate::namespace::listing::{Cookie, DirEntry};
use crate::new_file::NewFile;
use crate::operation::is_dots;
use crate::permissions::{Caller, READ};
use crate::recover::damaged;
use crate::{Error, FileId, Handle, Result, Volume};

impl Volume {
    /// Resolves a path; a symbolic link at its end is followed if `follow`. Another thread may remove the file at any
    /// time: [`resolve_handle`](Self::resolve_handle) keeps a reference.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`; damage.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<FileId> {
        Ok(self.resolve_handle(path, follow)?.id())
    }

    /// Resolves a path to a reference. Each directory of the path is referenced until the next name was looked up in
    /// it.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_handle(&self, path: &[u8], follow: bool) -> Result<Handle> {
        self.resolve_cached(self.names.root_start(), path, follow)
            .unwrap_or_else(|| self.look_up_path(path, follow))
    }

    /// Resolves a path by looking its names up one by one, which adds them to the names in memory.
    pub(crate) fn look_up_path(&self, path: &[u8], follow: bool) -> Result<Handle> {
        self.walker(&self.root_handle()?).resolve(path, follow)
    }

    /// Resolves a path relative to a directory, or to the root if it has a leading slash. A symbolic link at its end is
    /// followed.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_from(&self, dir: &Handle, path: &[u8]) -> Result<Handle> {
        self.walker(dir).resolve(path, true)
    }

    /// The parent directory of a path, and the path's last name.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve); `EINVAL` if the path has no name at its end.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(FileId, &'p [u8])> {
        let (dir, name) = self.resolve_parent_handle(path)?;
        Ok((dir.id(), name))
    }

    /// The parent directory of a path as a reference, and the path's last name.
    ///
    /// # Errors
    /// As [`resolve_parent`](Self::resolve_parent).
    pub fn resolve_parent_handle<'p>(&self, path: &'p [u8]) -> Result<(Handle, &'p [u8])> {
        let (parent, name) = split_last(path);
        if name.is_empty() {
            return Err(Error::refused(errno::EINVAL, "the path names the root directory"));
        }
        Ok((self.resolve_handle(parent, true)?, name))
    }

    /// A walk that checks no permissions.
    fn walker<'w>(&'w self, start: &'w Handle) -> Walker<'w> {
        Walker::new(self, Caller::PROGRAM, Resolve::default(), start)
    }

    /// A reference to the root directory.
    pub(crate) fn root_handle(&self) -> Result<Handle> {
        let root = Handle::new(self.inode_at(self.geometry.root)?);
        self.names.set_root(root.inode());
        Ok(root)
    }

    /// Creates a directory and its missing parents.
    ///
    /// # Errors
    /// `ENOTDIR` if another file has one of the names; as [`create`](Self::create).
    pub fn create_dir_all(&self, path: &[u8], new: &NewFile<'_>) -> Result<FileId> {
        Ok(self.walker(&self.root_handle()?).create_dir_all(path, new)?.id())
    }

    /// Removes a file, or a directory with everything in it.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink) and [`rmdir`](Self::rmdir); what was removed before stays removed.
    pub fn remove_all(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.remove_all_in(Caller::PROGRAM, &self.open_id(dir)?, name)
    }

    /// Removes a file, or a directory with everything in it, for a caller.
    pub(crate) fn remove_all_in(&self, caller: Caller<'_>, dir: &Handle, name: &[u8]) -> Result<()> {
        match self.unlink_in(caller, dir.inode(), name) {
            Err(error) if error.errno() == errno::EISDIR => {}
            result => return result.map(drop),
        }
        // Depth first, with a list of directories instead of recursion: a tree may be deeper than a stack.
        let mut visited = Visited::default();
        let mut path = Path::of(Level::enter(self, caller, dir.clone(), name.to_vec(), &mut visited)?);
        while let Some(level) = path.levels.last_mut() {
            match self.remove_files_in(caller, level)? {
                Some(name) => {
                    let parent = level.dir.clone();
                    // What another thread removes or moves meanwhile is gone, too.
                    if let Some(level) = unless_gone(Level::enter(self, caller, parent, name, &mut visited))?
                    {
                        path.push(level);
                    }
                }
                None => {
                    unless_gone(self.rmdir_in(caller, level.parent.inode(), &level.name))?;
                    // Its inode number may be reused from now on.
                    visited.leave(level.dir.ino());
                    path.pop();
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` with a file and everything below it: a directory before its entries, a file once for each name.
    /// Each is referenced during the call. A file that is removed meanwhile may be left out.
    ///
    /// # Errors
    /// Errors of `visit`; `ESTALE` if the file was removed; damage, also if a directory has two names.
    pub fn for_each_below(&self, top: FileId, mut visit: impl FnMut(FileId) -> Result<()>) -> Result<()> {
        let (mut pending, mut visited) = (Vec::new(), Visited::default());
        let mut next = Some(self.open_id(top)?);
        loop {
            if let Some(file) = next {
                visit(file.id())?;
                // The type in the directory entry may be wrong in a damaged volume.
                if file.is(FileType::Directory) {
                    visited.enter(file.ino())?;
                    self.for_each_entry(file.id(), |entry| {
                        pending.push((file.clone(), entry.name.to_vec()))
                    })?;
                }
            }
            let Some((dir, name)) = pending.pop() else { return Ok(()) };
            next = match self.lookup_handle(dir.id(), &name) {
                Err(error) if error.errno() == errno::ENOENT => None,
                found => Some(found?),
            };
        }
    }

    /// Calls `visit` with each entry of a directory except `.` and `..`.
    fn for_each_entry(&self, dir: FileId, mut visit: impl FnMut(DirEntry<'_>)) -> Result<()> {
        self.read_dir(dir, Cookie::default(), &mut |entry| {
            if !is_dots(entry.name) {
                visit(entry);
            }
            true
        })
    }

    /// Removes the files of a directory up to the next subdirectory, and returns its name; `None` if there is none.
    fn remove_files_in(&self, caller: Caller<'_>, level: &mut Level) -> Result<Option<Vec<u8>>> {
        loop {
            while let Some(name) = level.names.pop() {
                match self.unlink_in(caller, level.dir.inode(), &name) {
                    Err(error) if error.errno() == errno::EISDIR => return Ok(Some(name)),
                    result => drop(unless_gone(result)?),
                }
            }
            if level.is_read || !level.read(self)? {
                return Ok(None);
            }
        }
    }
}

/// `None` if a file does not exist.
fn unless_gone<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.errno() == errno::ENOENT => Ok(None),
        result => result.map(Some),
    }
}

/// Visited directories. In a damaged volume a directory may be below itself: the walk must end.
#[derive(Default)]
struct Visited(HashSet<Ino>);

impl Visited {
    fn enter(&mut self, dir: Ino) -> Result<()> {
        if self.0.insert(dir) {
            return Ok(());
        }
        Err(damaged(dir, Damage::new("directory", "names", "one", "another one, below itself")))
    }

    fn leave(&mut self, dir: Ino) {
        self.0.remove(&dir);
    }
}

/// Names of a directory that are read at once, to be removed: a directory may have more than fit in memory.
const NAMES_AT_ONCE: usize = 1024;

/// Names that the directories of a path have together, except the last one: a tree may be deep.
const NAMES_OF_PATH: usize = 4096;

/// The directories that are being removed: each is in the one before it.
struct Path {
    levels: Vec<Level>,
    /// Number of names of all levels except the last one.
    names: usize,
    /// So many levels at the beginning have [forgotten](Level::forget) their names.
    forgotten: usize,
}

impl Path {
    fn of(first: Level) -> Self {
        Self { levels: vec![first], names: 0, forgotten: 0 }
    }

    /// Adds a directory. If those before it have too many names, the first ones, which are used last, forget theirs.
    fn push(&mut self, level: Level) {
        self.names += self.levels.last().map_or(0, |parent| parent.names.len());
        self.levels.push(level);
        while self.names > NAMES_OF_PATH
            && let Some(first) = self.levels.get_mut(self.forgotten)
        {
            self.names -= first.forget();
            self.forgotten += 1;
        }
    }

    /// Removes the last directory.
    fn pop(&mut self) {
        self.levels.pop();
        self.names -= self.levels.last().map_or(0, |parent| parent.names.len());
        self.forgotten = self.forgotten.min(self.levels.len().saturating_sub(1));
    }
}

/// A directory that is being removed.
struct Level {
    parent: Handle,
    name: Vec<u8>,
    dir: Handle,
    /// Names that are still to be removed.
    names: Vec<Vec<u8>>,
    /// Position from which they were read.
    first: Cookie,
    /// Position of the names that follow.
    next: Cookie,
    /// All names were read.
    is_read: bool,
}

impl Level {
    fn enter(
        volume: &Volume,
        caller: Caller<'_>,
        parent: Handle,
        name: Vec<u8>,
        visited: &mut Visited,
    ) -> Result<Self> {
        let dir = volume.lookup_in(parent.inode(), &name)?;
        volume.expect_permitted(caller, dir.inode(), READ)?;
        let (first, next) = (Cookie::default(), Cookie::default());
        let mut level = Self { parent, name, dir, names: Vec::new(), first, next, is_read: false };
        // It may not be a directory.
        level.read(volume)?;
        visited.enter(level.dir.ino())?;
        Ok(level)
    }

    /// Reads more names. Returns whether there were any.
    fn read(&mut self, volume: &Volume) -> Result<bool> {
        let Self { names, next, .. } = self;
        self.first = *next;
        volume.read_dir(self.dir.id(), *next, &mut |entry| {
            if names.len() == NAMES_AT_ONCE {
                return false;
            }
            *next = entry.next;
            if !is_dots(entry.name) {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        self.is_read = names.len() < NAMES_AT_ONCE;
        // The first one is removed first.
        names.reverse();
        Ok(!names.is_empty())
    }

    /// Drops the names, which are read again when they are needed; the removed ones are not among them then. Returns
    /// their number.
    fn forget(&mut self) -> usize {
        let count = std::mem::take(&mut self.names).len();
        if count > 0 {
            (self.next, self.is_read) = (self.first, false);
        }
        count
    }
}
