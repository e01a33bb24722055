//! A directory of the host as a store: each object is a file.
//!
//! # Invariants
//! - A file gets its name when it is complete and stable, by a link that fails if the name exists. A replacement is a
//!   rename under a lock on the directory of the object, which every writer of versions takes.
//! - A version is a hash of the contents.
//! - Only regular files are read: a FIFO or a symbolic link in the directory is an error.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::contract::{LIST_PAGE, ListPage, Listed, Object, Store, Version, is_valid_key};
use crate::error::{ErrorKind, Request, StoreError};

/// Begins the names of files that are no objects.
const PRIVATE: &str = ".";
/// The file whose lock orders replacements in its directory.
const LOCK: &str = ".lock";

/// A store in a directory.
#[derive(Debug)]
pub struct DirectoryStore {
    root: PathBuf,
    /// Number of temporary files, for their names.
    temporary: AtomicU64,
}

impl DirectoryStore {
    /// A store in `root`, which the first write makes.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), temporary: AtomicU64::new(0) }
    }

    fn error(&self, request: Request, key: &str, source: io::Error) -> StoreError {
        let kind = match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NOTDIR) => ErrorKind::Absent,
            Some(Errno::EXIST) => ErrorKind::Precondition,
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ErrorKind::Denied,
            Some(Errno::LOOP | Errno::NAMETOOLONG | Errno::ISDIR) | None => ErrorKind::Invalid,
            // A full or failing disk: what is unwritten stays in memory, and may be written later.
            Some(_) => ErrorKind::Unclear,
        };
        StoreError::new(kind, self.describe(), request, key, source)
    }

    fn path(&self, request: Request, key: &str) -> Result<PathBuf, StoreError> {
        match is_valid_key(key) {
            true => Ok(self.root.join(key)),
            false => {
                let reason = "not a name of an object";
                Err(StoreError::new(ErrorKind::Invalid, self.describe(), request, key, reason))
            }
        }
    }

    fn open(&self, key: &str) -> Result<(File, fs::Metadata), StoreError> {
        let path = self.path(Request::Get, key)?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
        let checked = opened.and_then(|file| {
            let metadata = file.metadata()?;
            match metadata.is_file() {
                true => Ok((file, metadata)),
                false => Err(io::Error::other("not a regular file")),
            }
        });
        checked.map_err(|source| self.error(Request::Get, key, source))
    }

    /// A complete, stable file without its final name.
    fn write_temporary(&self, folder: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        let number = self.temporary.fetch_add(1, Relaxed);
        let unique = u64::from_ne_bytes(base::random::bytes_from_machine()?);
        let path = folder.join(format!("{PRIVATE}new-{unique:016x}-{number}"));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.map(|()| path.clone()).inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Makes the directory of an object. Each new one is stable in its parent.
    fn make_folder(folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        if let Some(parent) = folder.parent() {
            Self::make_folder(parent)?;
        }
        match DirBuilder::new().mode(0o777).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => folder.parent().map_or(Ok(()), sync_folder),
        }
    }

    fn put(
        &self,
        key: &str,
        bytes: &[u8],
        how: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> Result<Version, StoreError> {
        let path = self.path(Request::Put, key)?;
        let folder = path.parent().unwrap_or(&self.root);
        let put = || {
            Self::make_folder(folder)?;
            let temporary = self.write_temporary(folder, bytes)?;
            let placed = how(&temporary, &path);
            // After a rename it is gone.
            let _ = fs::remove_file(&temporary);
            placed.and_then(|()| sync_folder(folder))
        };
        put().map_err(|source| self.error(Request::Put, key, source))?;
        Ok(version_of(bytes))
    }

    /// Names of files below a folder, in order.
    fn walk(&self, folder: &Path, prefix: &str, found: &mut Vec<Listed>, depth: usize) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_valid_key(name)) else { continue };
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if metadata.is_dir() && depth < 8 {
                self.walk(&entry.path(), &format!("{prefix}{name}/"), found, depth + 1)?;
            } else if metadata.is_file() {
                let key = format!("{prefix}{name}");
                found.push(Listed { key, size: metadata.len(), modified: modified(&metadata) });
            }
        }
        Ok(())
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn modified(metadata: &fs::Metadata) -> Duration {
    Duration::from_secs(u64::try_from(metadata.mtime()).unwrap_or(0))
}

fn version_of(bytes: &[u8]) -> Version {
    let hash = Sha256::digest(bytes);
    let etag = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Version { etag: Some(etag), generation: None }
}

impl Store for DirectoryStore {
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError> {
        let (file, metadata) = self.open(key)?;
        let mut bytes = Vec::new();
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        let read = read.and_then(|read| match read as u64 > limit {
            true => Err(io::Error::other(format!("it is larger than {limit} bytes"))),
            false => Ok(()),
        });
        read.map_err(|source| self.error(Request::Get, key, source))?;
        let version = version_of(&bytes);
        Ok(Object { bytes: bytes.into(), version, modified: modified(&metadata) })
    }

    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError> {
        let (file, metadata) = self.open(key)?;
        let length = length.min(metadata.len().saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = file.read_exact_at(&mut bytes, offset);
        read.map_err(|source| self.error(Request::Get, key, source))?;
        Ok(bytes.into())
    }

    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError> {
        self.put(key, &bytes, |temporary, path| fs::hard_link(temporary, path))
    }

    fn put_if_match(&self, key: &str, bytes: Bytes, version: &Version) -> Result<Version, StoreError> {
        self.put(key, &bytes, |temporary, path| {
            let folder = path.parent().unwrap_or(&self.root);
            let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join(LOCK))?;
            // Closing it unlocks it.
            flock(&lock, FlockOperation::LockExclusive)?;
            let mut hash = Sha256::new();
            let current = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Errno::EXIST.into()),
                file => io::copy(&mut file?, &mut HashWriter(&mut hash)).map(|_| hash.finalize())?,
            };
            let etag: String = current.iter().map(|byte| format!("{byte:02x}")).collect();
            match version.etag.as_ref() == Some(&etag) {
                true => fs::rename(temporary, path),
                false => Err(Errno::EXIST.into()),
            }
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError> {
        let mut objects = Vec::new();
        let folder = match prefix.trim_end_matches('/') {
            "" => self.root.clone(),
            prefix => self.path(Request::List, prefix)?,
        };
        let prefix =
            if prefix.is_empty() { String::new() } else { format!("{}/", prefix.trim_end_matches('/')) };
        self.walk(&folder, &prefix, &mut objects, 0)
            .map_err(|source| self.error(Request::List, &prefix, source))?;
        objects.retain(|listed| after.is_none_or(|after| listed.key.as_str() > after));
        objects.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let more = objects.len() > LIST_PAGE;
        objects.truncate(LIST_PAGE);
        Ok(ListPage { objects, more })
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        match fs::remove_file(self.path(Request::Delete, key)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted.map_err(|source| self.error(Request::Delete, key, source)),
        }
    }

    fn describe(&self) -> String {
        format!("file://{}", AsRef::<OsStr>::as_ref(&self.root).to_string_lossy())
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
