//! Path resolution: from a directory, name by name.
//!
//! Paths of which all names are in memory are resolved by [`vfs`] without a lock. This module resolves the others: name
//! by name, with the right error for a user who must not search a directory, and within a directory if there are rules.

use std::borrow::Cow;

use base::errno;
use format::inode::FileType;

use crate::names::{LINKS_MAX, Start};
use crate::new_file::NewFile;
use crate::operation::{no_such_file, not_a_directory};
use crate::permissions::{Caller, EXECUTE};
use crate::{Error, Handle, Result, Volume};

/// Rules for resolving paths, as those of `openat2`.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{Dir, Options, Resolve, Scope, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let root = Dir::open(&volume, "/")?;
/// root.create_dir("upload")?;
/// root.write("secret", "text")?;
/// let upload = root.open_dir("upload")?.with_resolve(Resolve { scope: Scope::Beneath, ..Resolve::default() });
/// assert_eq!(upload.read("../secret").unwrap_err().errno(), base::errno::EXDEV);
/// # drop((root, upload));
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolve {
    /// Where paths may lead.
    pub scope: Scope,
    /// Refuse all symbolic links on the way (`RESOLVE_NO_SYMLINKS`). `ELOOP`.
    pub no_symlinks: bool,
}

/// Where paths may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Anywhere in the volume. Absolute paths begin at its root.
    #[default]
    Volume,
    /// Only to files below the directory (`RESOLVE_BENEATH`): absolute paths and a `..` that leaves the directory are
    /// refused, also those of symbolic links. `EXDEV`.
    Beneath,
    /// As if the directory were the root, as after `chroot` (`RESOLVE_IN_ROOT`).
    InRoot,
}

/// A walk along a path, for a caller and by rules.
pub(crate) struct Walker<'w> {
    volume: &'w Volume,
    caller: Caller<'w>,
    rules: Resolve,
    /// Where relative paths begin.
    start: &'w Handle,
    /// The directories from `start` to the current one, without it. Empty in [`Scope::Volume`], where `..` is looked
    /// up: within a directory it must lead back the way that the walk came, whoever moves directories meanwhile.
    above: Vec<Handle>,
    /// Symbolic links followed.
    followed: u32,
}

/// The end of a path: a name that may not exist yet.
pub(crate) struct LastName<'p> {
    /// The directory of the name.
    pub dir: Handle,
    /// The name, which may be `.` or `..`; `.` for a path that ends in the root.
    pub name: Cow<'p, [u8]>,
    /// The path has a slash at its end.
    pub must_be_dir: bool,
}

impl<'w> Walker<'w> {
    pub fn new(volume: &'w Volume, caller: Caller<'w>, rules: Resolve, start: &'w Handle) -> Self {
        Self { volume, caller, rules, start, above: Vec::new(), followed: 0 }
    }

    /// The file at a path; a symbolic link at its end is followed if `follow`.
    pub fn resolve(&mut self, path: &[u8], follow: bool) -> Result<Handle> {
        let from = self.beginning(self.start, path)?;
        self.walk(from, path, follow)
    }

    /// The directory of the last name of a path.
    pub fn last_name<'p>(&mut self, path: &'p [u8]) -> Result<LastName<'p>> {
        let from = self.beginning(self.start, path)?;
        self.last_name_from(from, path)
    }

    /// What a symbolic link at the end of a path refers to: another last name.
    pub fn last_name_of_link(&mut self, dir: &Handle, link: &Handle) -> Result<LastName<'static>> {
        let target = self.target(link)?;
        let from = self.beginning(dir, &target)?;
        let LastName { dir, name, must_be_dir } = self.last_name_from(from, &target)?;
        Ok(LastName { dir, name: Cow::Owned(name.into_owned()), must_be_dir })
    }

    fn last_name_from<'p>(&mut self, from: Handle, path: &'p [u8]) -> Result<LastName<'p>> {
        let (parent, name) = split_last(path);
        let dir = match self.walk_in_memory(&from, parent) {
            Some(dir) => dir?,
            None => self.walk(from, parent, true)?,
        };
        self.expect_searchable(&dir)?;
        let name: &[u8] = if name.is_empty() { b"." } else { name };
        Ok(LastName { dir, name: Cow::Borrowed(name), must_be_dir: path.last() == Some(&b'/') })
    }

    /// Creates the directories of a path that do not exist.
    pub fn create_dir_all(&mut self, path: &[u8], new: &NewFile<'_>) -> Result<Handle> {
        let mut current = self.beginning(self.start, path)?;
        for name in names(path) {
            let created = self.volume.create_in(self.caller, current.inode(), name, new);
            current = match created {
                Ok(dir) => {
                    self.entering(current);
                    Handle::new(dir)
                }
                Err(error) if error.errno() == errno::EEXIST => self.step(current, name, true)?,
                Err(error) => return Err(error),
            };
        }
        Ok(current)
    }

    /// The directory where a path begins that is relative to `dir`.
    fn beginning(&mut self, dir: &Handle, path: &[u8]) -> Result<Handle> {
        if path.first() != Some(&b'/') {
            return Ok(dir.clone());
        }
        match self.rules.scope {
            Scope::Volume => self.volume.root_handle(),
            Scope::Beneath => Err(leaves_directory()),
            Scope::InRoot => {
                self.above.clear();
                Ok(self.start.clone())
            }
        }
    }

    fn walk(&mut self, from: Handle, path: &[u8], follow: bool) -> Result<Handle> {
        let mut current = from;
        let must_be_dir = path.last() == Some(&b'/');
        let mut names = names(path).peekable();
        while let Some(name) = names.next() {
            let follows = follow || must_be_dir || names.peek().is_some();
            current = self.step(current, name, follows)?;
        }
        if must_be_dir && !current.is(FileType::Directory) {
            return Err(not_a_directory());
        }
        Ok(current)
    }

    /// Walks to a directory without a lock, if there are no rules for the way, and all names are in memory.
    fn walk_in_memory(&mut self, from: &Handle, path: &[u8]) -> Option<Result<Handle>> {
        if self.rules != Resolve::default() {
            return None;
        }
        let (start, mut links) =
            (Start::of(self.caller, from.inode()), LINKS_MAX.saturating_sub(self.followed));
        let found = self.volume.resolve_cached_within(start, path, true, &mut links)?;
        self.followed = LINKS_MAX - links;
        Some(found)
    }

    /// Goes from a directory to one of its entries.
    fn step(&mut self, dir: Handle, name: &[u8], follow: bool) -> Result<Handle> {
        self.expect_searchable(&dir)?;
        if name == b".." && self.rules.scope != Scope::Volume {
            if !dir.is(FileType::Directory) {
                return Err(not_a_directory());
            }
            return match (self.above.pop(), self.rules.scope) {
                (Some(parent), _) => Ok(parent),
                (None, Scope::Beneath) => Err(leaves_directory()),
                (None, _) => Ok(dir),
            };
        }
        let file = self.volume.lookup_in(dir.inode(), name)?;
        if follow && file.is(FileType::Symlink) {
            let target = self.target(&file)?;
            let from = self.beginning(&dir, &target)?;
            return self.walk(from, &target, true);
        }
        if name != b"." {
            self.entering(dir);
        }
        Ok(file)
    }

    /// The target of a symbolic link that is followed.
    fn target(&mut self, link: &Handle) -> Result<Vec<u8>> {
        if self.rules.no_symlinks {
            return Err(Error::refused(errno::ELOOP, "symbolic links are not followed"));
        }
        self.followed += 1;
        if self.followed > LINKS_MAX {
            return Err(Error::refused(errno::ELOOP, "too many symbolic links on the way"));
        }
        self.volume.read_link_of(link.inode())
    }

    /// Notes a directory that the walk leaves downwards.
    fn entering(&mut self, dir: Handle) {
        if self.rules.scope != Scope::Volume {
            self.above.push(dir);
        }
    }

    /// Refuses to look up names in a file that is not a directory, and in one that the caller must not search.
    fn expect_searchable(&self, dir: &Handle) -> Result<()> {
        if !self.caller.is_user() {
            return Ok(()); // lookup finds out whether it is a directory
        }
        if !dir.is(FileType::Directory) {
            return Err(not_a_directory());
        }
        self.volume.expect_permitted(self.caller, dir.inode(), EXECUTE)
    }
}

/// The names of a path.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// The last name of a path, without slashes at its end, and the path before it. A path that names the root has no name.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let trimmed = path.get(..end).unwrap_or(path);
    let start = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    match trimmed.is_empty() {
        true => (path, trimmed),
        false => trimmed.split_at_checked(start).unwrap_or((&[], trimmed)),
    }
}

/// Refuses the empty path, which Linux does not resolve to a directory.
pub(crate) fn expect_path(path: &[u8]) -> Result<&[u8]> {
    if path.is_empty() { Err(no_such_file()) } else { Ok(path) }
}

fn leaves_directory() -> Error {
    Error::refused(errno::EXDEV, "the path leaves the directory that it must stay in")
}
