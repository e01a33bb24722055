//! A directory of the host as a store: each object is a file.
//!
//! # Invariants
//! - A file gets its name when it is complete and stable, by a link that fails if the name exists. A replacement is a
//!   rename. Links, renames and removals of names are done under a lock on the folder of the object.
//! - A version is a hash of the contents.
//! - Only regular files are read: a FIFO or a symbolic link in the directory is an error.
//!
//! A page of a list reads and sorts all names below its prefix.

mod folder;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base::lock::{Mutex, Rank};
use bytes::Bytes;
use rustix::fs::Stat;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::contract::{LIST_PAGE, ListPage, Object, Store, Version, is_valid_key};
use crate::error::{ErrorKind, Request, StoreError};
use folder::{Folder, size};

/// A store in a directory.
#[derive(Debug)]
pub struct DirectoryStore {
    root: PathBuf,
    /// Number of temporary files, for their names.
    temporary: AtomicU64,
    /// Folders from which abandoned files were removed.
    swept: Mutex<BTreeSet<String>>,
}

impl DirectoryStore {
    /// A store in `root`, which the first write makes.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let swept = Mutex::new(Rank::Leaf, BTreeSet::new());
        Self { root: root.into(), temporary: AtomicU64::new(0), swept }
    }

    fn error(&self, request: Request, key: &str, source: io::Error) -> StoreError {
        let kind = match Errno::from_io_error(&source) {
            _ if source.kind() == io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            Some(Errno::NOENT) if request == Request::Get => ErrorKind::Absent,
            Some(Errno::EXIST) => ErrorKind::Precondition,
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ErrorKind::Denied,
            Some(Errno::LOOP | Errno::NAMETOOLONG | Errno::ISDIR | Errno::NOTDIR) | None => {
                ErrorKind::Invalid
            }
            // A full or failing disk: what is unwritten stays in memory, and may be written later.
            Some(_) => ErrorKind::Unclear,
        };
        StoreError::new(kind, self.describe(), request, key, source)
    }

    fn check(&self, request: Request, key: &str) -> Result<(), StoreError> {
        match is_valid_key(key) {
            true => Ok(()),
            false => {
                let reason = "not a name of an object";
                Err(StoreError::new(ErrorKind::Invalid, self.describe(), request, key, reason))
            }
        }
    }

    fn folder(&self, path: &str, create: bool) -> io::Result<Folder> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.fold(Folder::root(&self.root, create), |folder, part| folder?.child(part, create))
    }

    fn open(&self, key: &str) -> Result<(std::fs::File, Stat), StoreError> {
        self.check(Request::Get, key)?;
        let (folder, name) = split(key);
        let opened = self.folder(folder, false).and_then(|folder| folder.file(name));
        opened.map_err(|source| self.error(Request::Get, key, source))
    }

    /// Writes a file, which `place` gives its name under the lock of the folder.
    fn put(
        &self,
        key: &str,
        bytes: &[u8],
        folder: impl FnOnce(&str) -> io::Result<Folder>,
        place: impl FnOnce(&Folder, &str, &str) -> io::Result<()>,
    ) -> Result<Version, StoreError> {
        self.check(Request::Put, key)?;
        let (path, name) = split(key);
        let put = || {
            let folder = folder(path)?;
            let number = self.temporary.fetch_add(1, Relaxed);
            let unique = u64::from_ne_bytes(base::random::bytes_from_machine()?);
            let sweep = self.swept.lock().insert(path.to_owned());
            let temporary = folder.write_temporary(&format!("{unique:016x}-{number}"), bytes, sweep)?;
            let placed = folder.lock().and_then(|_lock| place(&folder, &temporary, name));
            // After a rename it is gone.
            let _ = folder.remove(&temporary);
            placed.and_then(|()| folder.sync())
        };
        put().map_err(|source| self.error(Request::Put, key, source))?;
        Ok(version_of(bytes))
    }
}

/// The folder of an object, and its name there.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

fn modified(stat: &Stat) -> Duration {
    Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0))
}

fn version_of(bytes: &[u8]) -> Version {
    version(Sha256::new().chain_update(bytes))
}

fn version(hash: Sha256) -> Version {
    let etag = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Version { etag: Some(etag), generation: None }
}

/// Another result for a file or folder that does not exist.
fn if_absent<T>(result: io::Result<T>, other: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => other(),
        result => result,
    }
}

impl Store for DirectoryStore {
    fn get(&self, key: &str, limit: u64) -> Result<Object, StoreError> {
        let (file, stat) = self.open(key)?;
        let mut bytes = Vec::new();
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        let read = read.and_then(|read| match read as u64 > limit {
            true => Err(io::Error::other(format!("it is larger than {limit} bytes"))),
            false => Ok(()),
        });
        read.map_err(|source| self.error(Request::Get, key, source))?;
        let version = version_of(&bytes);
        Ok(Object { bytes: bytes.into(), version, modified: modified(&stat) })
    }

    fn get_range(&self, key: &str, offset: u64, length: u64) -> Result<Bytes, StoreError> {
        let (file, stat) = self.open(key)?;
        let length = length.min(size(&stat).saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = if bytes.is_empty() { Ok(()) } else { file.read_exact_at(&mut bytes, offset) };
        read.map_err(|source| self.error(Request::Get, key, source))?;
        Ok(bytes.into())
    }

    fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<Version, StoreError> {
        self.put(key, &bytes, |path| self.folder(path, true), Folder::link)
    }

    fn put_if_match(&self, key: &str, bytes: Bytes, expected: &Version) -> Result<Version, StoreError> {
        let refused = || io::Error::from(Errno::EXIST);
        let folder = |path: &str| if_absent(self.folder(path, false), || Err(refused()));
        self.put(key, &bytes, folder, |folder, temporary, name| {
            let (mut file, _) = if_absent(folder.file(name), || Err(refused()))?;
            let mut hash = Sha256::new();
            io::copy(&mut file, &mut HashWriter(&mut hash))?;
            match version(hash) == *expected {
                true => folder.rename(temporary, name),
                false => Err(refused()),
            }
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<ListPage, StoreError> {
        let path = prefix.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        if !path.is_empty() {
            self.check(Request::List, path)?;
        }
        let mut objects = Vec::new();
        let walked = self.folder(path, false).and_then(|folder| folder.walk(&prefix, &mut objects));
        if_absent(walked, || Ok(())).map_err(|source| self.error(Request::List, &prefix, source))?;
        objects.retain(|listed| after.is_none_or(|after| listed.key.as_str() > after));
        objects.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let more = objects.len() > LIST_PAGE;
        objects.truncate(LIST_PAGE);
        Ok(ListPage { objects, more })
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.check(Request::Delete, key)?;
        let (path, name) = split(key);
        let deleted = self.folder(path, false).and_then(|folder| {
            let _lock = folder.lock()?;
            folder.remove(name)?;
            folder.sync()
        });
        if_absent(deleted, || Ok(())).map_err(|source| self.error(Request::Delete, key, source))
    }

    fn describe(&self) -> String {
        format!("file://{}", self.root.display())
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
