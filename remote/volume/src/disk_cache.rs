//! Parts of objects on a local disk, so that they are fetched once.
//!
//! A file is named after an object, and has its bytes at the same offsets; what was not fetched is a hole. Objects
//! never change, and what is read from them has a checksum that covers its place: a hole, or a write that a crash has
//! torn, does not decode, and is fetched again. So the cache has no index, and processes may share a directory.
//!
//! # Invariants
//! - Nothing fails because of the cache. Where it cannot be read or written, the store is asked.
//! - Only files with names that the cache gives are deleted.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use base::lock::{Mutex, Rank};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use store::Bytes;

use crate::codec::crc;
use crate::names;

/// Unit of [`fs::Metadata::blocks`].
const SECTOR: u64 = 512;
/// A file is marked as used by its modification time.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
const OMITTED: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };

/// A directory with parts of objects of any number of volumes.
#[derive(Debug)]
pub struct DiskCache {
    folder: PathBuf,
    limit: u64,
    /// Bytes of all files: as they were counted last, and what was written since.
    used: AtomicU64,
    /// Held by the thread that deletes files.
    evicting: Mutex<()>,
}

/// A file of the cache.
struct Cached {
    used_at: SystemTime,
    bytes: u64,
    path: PathBuf,
}

impl DiskCache {
    /// A cache in a directory, which is made if it is missing. Files that were not used for the longest time are
    /// deleted when all together have more than `limit` bytes.
    ///
    /// # Errors
    /// Those of making and reading the directory.
    pub fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        // What it contains is as secret as the volumes are.
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let cache = Self {
            folder: folder.into(),
            limit,
            used: AtomicU64::new(0),
            evicting: Mutex::new(Rank::Leaf, ()),
        };
        cache.add(files(folder)?.iter().map(|file| file.bytes).sum());
        Ok(cache)
    }

    fn add(&self, bytes: u64) {
        if self.used.fetch_add(bytes, Relaxed) + bytes > self.limit
            && let Some(_guard) = self.evicting.try_lock()
        {
            // If the directory is not readable now, it may be the next time.
            let _ = self.evict();
        }
    }

    /// Deletes files until an eighth of the limit is free.
    fn evict(&self) -> io::Result<()> {
        let mut files = files(&self.folder)?;
        files.sort_by_key(|file| file.used_at);
        let mut used: u64 = files.iter().map(|file| file.bytes).sum();
        for file in &files {
            if used <= self.limit - self.limit / 8 {
                break;
            }
            if fs::remove_file(&file.path).is_ok() {
                used = used.saturating_sub(file.bytes);
            }
        }
        self.used.store(used, Relaxed);
        Ok(())
    }
}

/// Files of a cache. Others, and those that are deleted meanwhile, are left out.
fn files(folder: &Path) -> io::Result<Vec<Cached>> {
    let mut found = Vec::new();
    for volume in fs::read_dir(folder)? {
        let volume = volume?;
        if !volume.file_name().to_str().is_some_and(is_volume_name) {
            continue;
        }
        let Ok(entries) = fs::read_dir(volume.path()) else { continue };
        for entry in entries.flatten() {
            let is_own = entry.file_name().to_str().is_some_and(|name| names::parse(&key(name)).is_some());
            let Ok(metadata) = entry.metadata() else { continue };
            if let (true, true, Ok(used_at)) = (is_own, metadata.is_file(), metadata.modified()) {
                found.push(Cached { used_at, bytes: metadata.blocks() * SECTOR, path: entry.path() });
            }
        }
    }
    Ok(found)
}

fn is_volume_name(name: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.split_once('-')
        .is_some_and(|(uuid, place)| (uuid.len(), place.len()) == (32, 8) && is_hex(uuid) && is_hex(place))
}

fn file_name(key: &str) -> String {
    key.replace('/', "-")
}

/// The name of the object of a file.
fn key(file_name: &str) -> String {
    file_name.replace('-', "/")
}

/// The part of a cache that has the objects of one volume.
#[derive(Debug)]
pub struct VolumeCache {
    cache: Arc<DiskCache>,
    folder: PathBuf,
}

impl VolumeCache {
    /// The objects of a volume. Copies of it have the same UUID, and names of objects, at another place.
    pub fn new(cache: &Arc<DiskCache>, uuid: &[u8; 16], place: &str) -> Self {
        let name = format!("{:032x}-{:08x}", u128::from_be_bytes(*uuid), crc(&[place.as_bytes()]));
        let folder = cache.folder.join(name);
        Self { cache: Arc::clone(cache), folder }
    }

    /// Bytes of an object, which may be wrong; `None` if not all of them are there.
    pub fn read(&self, key: &str, offset: u64, length: u64) -> Option<Bytes> {
        let file = File::open(self.folder.join(file_name(key))).ok()?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        file.read_exact_at(&mut bytes, offset).ok()?;
        // Another user's file cannot be marked as used.
        let _ = futimens(&file, &Timestamps { last_access: OMITTED, last_modification: NOW });
        Some(bytes.into())
    }

    /// Keeps bytes of an object.
    pub fn write(&self, key: &str, offset: u64, bytes: &[u8]) {
        // A disk that is full makes reads slower, nothing else.
        if self.write_file(key, offset, bytes).is_ok() {
            self.cache.add(bytes.len() as u64);
        }
    }

    fn write_file(&self, key: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join(file_name(key));
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                open()?
            }
            opened => opened?,
        };
        file.write_all_at(bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn total(folder: &Path) -> u64 {
        files(folder).unwrap().iter().map(|file| file.bytes).sum()
    }

    #[test]
    fn a_cache_keeps_its_limit_and_files_of_others() {
        const LIMIT: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(DiskCache::open(folder.path(), LIMIT).unwrap());
        let volume = VolumeCache::new(&cache, &[7; 16], "here");
        let strange = [folder.path().join("notes"), volume.folder.join("log-1-2")];
        for number in 0..100 {
            volume.write(&names::segment(1, number), 4096, &[number as u8; 65536]);
            if number == 0 {
                strange.iter().for_each(|path| fs::write(path, [1; 4096]).unwrap());
            }
            assert!(total(folder.path()) <= LIMIT + (64 << 10), "{number}");
        }
        let last = volume.read(&names::segment(1, 99), 4096, 65536).unwrap();
        assert!(last.iter().all(|byte| *byte == 99));
        assert!(volume.read(&names::segment(1, 99), 4096, 65537).is_none(), "it is not complete");
        assert!(volume.read(&names::segment(1, 0), 4096, 65536).is_none(), "the oldest is gone");
        assert!(strange.iter().all(|path| path.exists()));
        // A smaller limit holds from the beginning.
        DiskCache::open(folder.path(), LIMIT / 2).unwrap();
        assert!(total(folder.path()) <= LIMIT / 2);
    }

    #[test]
    fn what_is_used_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(DiskCache::open(folder.path(), 1 << 20).unwrap());
        let volume = VolumeCache::new(&cache, &[1; 16], "here");
        let hour = SystemTime::now() - Duration::from_secs(3600);
        for number in 0..12 {
            let key = names::map(1, number);
            volume.write(&key, 0, &[1; 65536]);
            let used_at = hour + Duration::from_secs(number);
            File::open(volume.folder.join(file_name(&key))).unwrap().set_modified(used_at).unwrap();
        }
        assert!(volume.read(&names::map(1, 0), 0, 4096).is_some());
        (12..20).for_each(|number| volume.write(&names::map(1, number), 0, &[1; 65536]));
        assert!(volume.read(&names::map(1, 0), 0, 4096).is_some());
        assert!(volume.read(&names::map(1, 1), 0, 4096).is_none());
    }
}
