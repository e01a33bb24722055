//! A folder of the store, by its descriptor.
//!
//! # Invariants
//! - Behind the root no symbolic link is followed: each part of a name is opened relative to the folder above it.
//! - A folder that was made is stable in the folder above it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, fsync, linkat, mkdirat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::modified;
use crate::contract::{Listed, is_valid_key};

/// Begins the names of files that are not complete.
const TEMPORARY: &str = ".new-";
/// The file whose lock orders the changes of names in its folder.
const LOCK: &str = ".lock";
/// Seconds after which a file that is not complete has no writer any more.
const ABANDONED: i64 = 24 * 60 * 60;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// A FIFO is not waited for.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    descriptor: OwnedFd,
}

impl Folder {
    /// The root of a store, which may be a symbolic link.
    pub(super) fn root(path: &Path, create: bool) -> io::Result<Self> {
        let open = || openat(CWD, path, FOLDER, Mode::empty());
        let descriptor = match open() {
            Err(Errno::NOENT) if create => {
                make(path)?;
                open()?
            }
            opened => opened?,
        };
        Ok(Self { descriptor })
    }

    /// A folder in this one.
    pub(super) fn child(&self, name: &str, create: bool) -> io::Result<Self> {
        let open = || openat(&self.descriptor, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        let descriptor = match open() {
            Err(Errno::NOENT) if create => {
                match mkdirat(&self.descriptor, name, Mode::from_raw_mode(0o777)) {
                    Err(Errno::EXIST) => {}
                    made => made?,
                }
                self.sync()?;
                open()?
            }
            opened => opened?,
        };
        Ok(Self { descriptor })
    }

    /// A regular file, for reading.
    pub(super) fn file(&self, name: &str) -> io::Result<(File, Stat)> {
        regular(openat(&self.descriptor, name, FILE, Mode::empty())?)
    }

    /// Excludes other changes of names in this folder until it is dropped.
    pub(super) fn lock(&self) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::CREATE;
        let (lock, _) = regular(openat(&self.descriptor, LOCK, flags, Mode::from_raw_mode(0o666))?)?;
        match flock(&lock, FlockOperation::LockExclusive) {
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Err(unsupported("locks (flock)")),
            locked => Ok(locked.map(|()| lock)?),
        }
    }

    /// A complete, stable file with a temporary name. Removes those that other writers left a day ago, if `sweep`.
    pub(super) fn write_temporary(&self, unique: &str, bytes: &[u8], sweep: bool) -> io::Result<String> {
        let name = format!("{TEMPORARY}{unique}");
        let flags = FILE | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = File::from(openat(&self.descriptor, &name, flags, Mode::from_raw_mode(0o666))?);
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let swept = written.and_then(|()| match sweep {
            // Both times are of the file system's clock.
            true => self.remove_abandoned(fstat(&file)?.st_mtime.saturating_sub(ABANDONED)),
            false => Ok(()),
        });
        match swept {
            Ok(()) => Ok(name),
            Err(error) => {
                let _ = self.remove(&name);
                Err(error)
            }
        }
    }

    fn remove_abandoned(&self, before: i64) -> io::Result<()> {
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && name.starts_with(TEMPORARY)
                && statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| stat.st_mtime < before)
            {
                // Another writer may be faster.
                let _ = self.remove(name);
            }
        }
        Ok(())
    }

    /// Gives a file a second name, which must be free.
    pub(super) fn link(&self, old: &str, new: &str) -> io::Result<()> {
        match linkat(&self.descriptor, old, &self.descriptor, new, AtFlags::empty()) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Err(unsupported("hard links")),
            linked => Ok(linked?),
        }
    }

    /// Renames a file over another one.
    pub(super) fn rename(&self, old: &str, new: &str) -> io::Result<()> {
        Ok(renameat(&self.descriptor, old, &self.descriptor, new)?)
    }

    /// Removes the name of a file.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Makes the names in this folder stable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.descriptor)?)
    }

    /// Regular files below this folder, in no order. Their names begin with `prefix`.
    pub(super) fn walk(&self, prefix: &str, found: &mut Vec<Listed>) -> io::Result<()> {
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let key = format!("{prefix}{name}");
            // This bounds the depth, too.
            if !is_valid_key(&key) {
                continue;
            }
            let stat = match statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat?,
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.child(name, false)?.walk(&format!("{key}/"), found)?,
                FileType::RegularFile => {
                    found.push(Listed { key, size: size(&stat), modified: modified(&stat) });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Length of a file.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn regular(descriptor: OwnedFd) -> io::Result<(File, Stat)> {
    let stat = fstat(&descriptor)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((descriptor.into(), stat)),
        _ => Err(io::Error::other("not a regular file")),
    }
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("the file system has no {what}"))
}

/// Makes the root of a store, and the folders above it.
fn make(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if parent != path && !parent.is_dir() {
        make(parent)?;
    }
    match mkdirat(CWD, path, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => {}
        made => made?,
    }
    File::open(parent)?.sync_all()
}
