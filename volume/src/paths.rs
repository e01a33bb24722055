//! The same by path. Paths are absolute, with or without the first slash; symbolic links on the way are followed within
//! the volume, and never lead out of it.

use std::collections::HashSet;

use base::{Ino, errno};
use format::damage::Damage;
use format::inode::FileType;

use crate::namespace::listing::{Cookie, Entry};
use crate::new::New;
use crate::recover::damaged;
use crate::{Error, Handle, Result, Volume};

/// How many symbolic links a path may go through, as in Linux.
const MAX_LINKS_FOLLOWED: u32 = 40;

impl Volume {
    /// What a path stands for; a symbolic link at its end is followed if `follow`. Another thread may remove the file
    /// at any time, and its number may then become another file's: [`resolve_handle`](Self::resolve_handle) keeps the
    /// file.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`; damage.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Ino> {
        Ok(self.resolve_handle(path, follow)?.ino())
    }

    /// The same with a reference: the file stays while the handle exists. Each directory on the way is referenced until
    /// the next name was looked up in it.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_handle(&self, path: &[u8], follow: bool) -> Result<Handle> {
        self.walk(self.root(), path, follow, &mut 0)
    }

    /// What a path stands for that begins in a directory, unless it has a slash in front. The link at its end is
    /// followed.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_from(&self, dir: Ino, path: &[u8]) -> Result<Ino> {
        Ok(self.walk(dir, path, true, &mut 0)?.ino())
    }

    /// The directory that a path's last name is in, and that name.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve); `EINVAL` where the path has no name at its end.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(Ino, &'p [u8])> {
        let (dir, name) = self.resolve_parent_handle(path)?;
        Ok((dir.ino(), name))
    }

    /// The same with a reference to the directory.
    ///
    /// # Errors
    /// As [`resolve_parent`](Self::resolve_parent).
    pub fn resolve_parent_handle<'p>(&self, path: &'p [u8]) -> Result<(Handle, &'p [u8])> {
        let trimmed = path.trim_suffix_slashes();
        let at = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (dir, name) = trimmed.split_at_checked(at).unwrap_or((&[], trimmed));
        if name.is_empty() {
            return Err(Error::refused(errno::EINVAL, "the path names the root directory"));
        }
        Ok((self.resolve_handle(dir, true)?, name))
    }

    fn walk(&self, from: Ino, path: &[u8], follow: bool, followed: &mut u32) -> Result<Handle> {
        let mut at = self.open_ino(if path.first() == Some(&b'/') { self.root() } else { from })?;
        let must_be_directory = path.last() == Some(&b'/');
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            // The root's `..` is the root itself.
            let next = self.lookup_handle(at.ino(), name)?;
            let last = names.peek().is_none();
            at = if !last || follow || must_be_directory { self.follow(&at, next, followed)? } else { next };
        }
        Ok(at)
    }

    fn follow(&self, dir: &Handle, file: Handle, followed: &mut u32) -> Result<Handle> {
        if !file.is(FileType::Symlink) {
            return Ok(file);
        }
        *followed += 1;
        if *followed > MAX_LINKS_FOLLOWED {
            return Err(Error::refused(errno::ELOOP, "too many symbolic links on the way"));
        }
        let target = self.read_link(file.ino())?;
        self.walk(dir.ino(), &target, true, followed)
    }

    /// Makes a directory, and those above it that are missing.
    ///
    /// # Errors
    /// `ENOTDIR` where something else has one of the names; as [`create`](Self::create).
    pub fn create_dir_all(&self, path: &[u8], new: &New<'_>) -> Result<Ino> {
        let mut at = self.open_ino(self.root())?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = match self.create_handle(at.ino(), name, new) {
                Err(error) if error.errno() == errno::EEXIST => {
                    let there = self.lookup_handle(at.ino(), name)?;
                    self.follow(&at, there, &mut 0)?
                }
                made => made?,
            };
        }
        Ok(at.ino())
    }

    /// Removes a name with everything below it.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink) and [`rmdir`](Self::rmdir); what was removed before stays removed.
    pub fn remove_all(&self, dir: Ino, name: &[u8]) -> Result<()> {
        match self.unlink(dir, name) {
            Err(error) if error.errno() == errno::EISDIR => {}
            done => return done,
        }
        // Depth first, with a list of directories instead of recursion: a tree may be deeper than a stack.
        let mut met = Met::default();
        let mut path = vec![self.emptied(dir, name.to_vec(), &mut met)?];
        while let Some(level) = path.last_mut() {
            match level.below.pop() {
                Some(name) => {
                    let parent = level.dir.ino();
                    path.push(self.emptied(parent, name, &mut met)?);
                }
                None => {
                    self.rmdir(level.parent, &level.name)?;
                    // Its number may be another's from now on.
                    met.leave(level.dir.ino());
                    path.pop();
                }
            }
        }
        Ok(())
    }

    /// Shows a file, and what is below it, by number: a directory before what is in it, and a file for each name. Each
    /// is referenced while it is shown. What is removed meanwhile may not be shown.
    ///
    /// # Errors
    /// What `see` returns; damage, also where a directory has two names.
    pub fn each_below(&self, top: Ino, mut see: impl FnMut(Ino) -> Result<()>) -> Result<()> {
        let (mut left, mut met) = (Vec::new(), Met::default());
        let mut next = Some(self.open_ino(top)?);
        loop {
            if let Some(file) = next {
                see(file.ino())?;
                // What the entry says of the type is not trusted: in a damaged volume it may be wrong.
                if file.is(FileType::Directory) {
                    met.meet(file.ino())?;
                    self.each_in(file.ino(), |entry| left.push((file.clone(), entry.name.to_vec())))?;
                }
            }
            let Some((dir, name)) = left.pop() else { return Ok(()) };
            next = match self.lookup_handle(dir.ino(), &name) {
                Err(error) if error.errno() == errno::ENOENT => None,
                found => Some(found?),
            };
        }
    }

    /// Shows what a directory has, but for itself and its parent.
    fn each_in(&self, dir: Ino, mut see: impl FnMut(Entry<'_>)) -> Result<()> {
        self.read_dir(dir, Cookie::default(), &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                see(entry);
            }
            true
        })
    }

    /// Removes everything in a directory but directories.
    fn emptied(&self, parent: Ino, name: Vec<u8>, met: &mut Met) -> Result<Level> {
        let dir = self.lookup_handle(parent, &name)?;
        met.meet(dir.ino())?;
        let mut names = Vec::new();
        self.each_in(dir.ino(), |entry| names.push(entry.name.to_vec()))?;
        let mut below = Vec::new();
        for name in names {
            match self.unlink(dir.ino(), &name) {
                Err(error) if error.errno() == errno::EISDIR => below.push(name),
                done => done?,
            }
        }
        Ok(Level { parent, name, dir, below })
    }
}

/// Directories on a walk. In a damaged volume one may be below itself: a walk that did not look would never end.
#[derive(Default)]
struct Met(HashSet<Ino>);

impl Met {
    fn meet(&mut self, dir: Ino) -> Result<()> {
        if self.0.insert(dir) {
            return Ok(());
        }
        Err(damaged(dir, Damage::new("directory", "names", "one", "another, on the way below it")))
    }

    fn leave(&mut self, dir: Ino) {
        self.0.remove(&dir);
    }
}

/// A directory that is being removed.
struct Level {
    parent: Ino,
    name: Vec<u8>,
    dir: Handle,
    /// Directories in it that are left.
    below: Vec<Vec<u8>>,
}

trait Slashes {
    fn trim_suffix_slashes(&self) -> &Self;
}

impl Slashes for [u8] {
    fn trim_suffix_slashes(&self) -> &Self {
        let end = self.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        self.get(..end).unwrap_or(self)
    }
}
