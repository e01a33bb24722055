//! Listing directories.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Ino, errno};
use format::inode::FileType;

use super::{AsPath, Dir};
use crate::operation::is_dots;
use crate::permissions::{Caller, Credentials, EXECUTE, READ};
use crate::{Cookie, Handle, Metadata, Result, Volume};

/// Entries that are read at once.
const BATCH: usize = 128;

/// An entry of a directory that was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: Ino,
    /// File type; `None` if the directory does not store it, and the metadata was not requested.
    pub file_type: Option<FileType>,
    /// Metadata, if it was requested: see [`ReadDir::with_metadata`].
    pub metadata: Option<Metadata>,
}

/// The entries of a directory, except `.` and `..`, in an order that is not specified. An entry that is added or
/// removed meanwhile may be listed or not; every other one is listed once.
#[derive(Debug)]
pub struct ReadDir<'v> {
    volume: &'v Volume,
    dir: Handle,
    next: Cookie,
    /// Entries that have been read.
    batch: VecDeque<Result<Entry>>,
    with_metadata: bool,
    user: Option<Arc<Credentials>>,
    is_done: bool,
}

impl<'v> Dir<'v> {
    /// Lists a directory.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
    /// # mkfs::format(&*device, &mkfs::Options::default())?;
    /// # let volume = xebec_volume::Volume::open(device, xebec_volume::Options::default())?;
    /// # let root = xebec_volume::Dir::open(&volume, "/")?;
    /// # root.write("file", "12345")?;
    /// for entry in root.read_dir("/")?.with_metadata() {
    ///     let entry = entry?;
    ///     println!("{} {:?}", entry.name.escape_ascii(), entry.metadata.map(|metadata| metadata.size));
    /// }
    /// # drop(root);
    /// # volume.unmount()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata); `ENOTDIR`; `EACCES`. The iterator returns errors of reading; damage of one
    /// entry does not end it.
    pub fn read_dir(&self, path: impl AsPath) -> Result<ReadDir<'v>> {
        self.open_dir(path)?.entries()
    }

    /// Lists this directory.
    ///
    /// # Errors
    /// As [`read_dir`](Self::read_dir).
    pub fn entries(&self) -> Result<ReadDir<'v>> {
        self.volume.expect_permitted(self.caller(), self.handle.inode(), READ)?;
        Ok(ReadDir {
            volume: self.volume,
            dir: self.handle.clone(),
            next: Cookie::default(),
            batch: VecDeque::new(),
            with_metadata: false,
            user: self.credentials.clone(),
            is_done: false,
        })
    }
}

impl ReadDir<'_> {
    /// Returns the metadata with each entry. An entry that is removed before its metadata is read is left out. The
    /// iterator returns `EACCES` if the user must not search the directory.
    #[must_use]
    pub fn with_metadata(mut self) -> Self {
        self.with_metadata = true;
        self
    }

    /// Reads a batch. Metadata is read when the directory is unlocked: it may take a read of the device for each file.
    fn fill(&mut self) -> Result<()> {
        let mut entries = Vec::with_capacity(BATCH);
        let next = &mut self.next;
        let listed = self.volume.read_dir_of(self.dir.inode(), *next, &mut |entry| {
            if entries.len() == BATCH {
                return false;
            }
            *next = entry.next;
            if !is_dots(entry.name) {
                let (name, ino) = (entry.name.to_vec(), entry.ino);
                entries.push(Entry { name, ino, file_type: entry.file_type, metadata: None });
            }
            true
        });
        let read = listed.result;
        self.is_done = entries.len() < BATCH || read.is_err();
        if self.with_metadata
            && let Some(version) = listed.version
        {
            self.volume.expect_permitted(Caller::new(self.user.as_ref()), self.dir.inode(), EXECUTE)?;
            self.add_metadata(&mut entries, version);
        }
        for entry in entries {
            let entry = match self.with_metadata && entry.metadata.is_none() {
                true => self.examined(entry).transpose(),
                false => Some(Ok(entry)),
            };
            self.batch.extend(entry);
        }
        // What was read before an error is listed before it.
        self.batch.extend(read.err().map(Err));
        Ok(())
    }

    /// Adds the metadata of files by their inode numbers, without looking the names up again. If the directory has
    /// changed since it was read, the numbers may belong to other files by now, and nothing is added; nor to an entry
    /// whose inode cannot be read.
    fn add_metadata(&self, entries: &mut [Entry], version: u64) {
        for entry in &mut *entries {
            let file = self.volume.inode_at(entry.ino);
            entry.metadata = file.and_then(|file| self.volume.metadata_of(&file)).ok();
        }
        let is_unchanged = self.dir.inode().peek(|dir| dir.core().changecount.get()) == version;
        for entry in entries {
            entry.metadata = entry.metadata.take().filter(|_| is_unchanged);
            entry.file_type = entry.metadata.as_ref().map_or(entry.file_type, |found| Some(found.file_type));
        }
    }

    /// Adds the metadata of the file that has the name now; `None` if there is none any more.
    fn examined(&self, entry: Entry) -> Result<Option<Entry>> {
        let file = match self.volume.lookup_in(self.dir.inode(), &entry.name) {
            Err(error) if error.errno() == errno::ENOENT => return Ok(None),
            file => file?,
        };
        let metadata = self.volume.metadata_of(file.inode())?;
        let file_type = Some(metadata.file_type);
        Ok(Some(Entry { ino: file.ino(), file_type, metadata: Some(metadata), ..entry }))
    }
}

impl Iterator for ReadDir<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.batch.is_empty() && !self.is_done {
            if let Err(error) = self.fill() {
                self.is_done = true;
                return Some(Err(error));
            }
        }
        self.batch.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Volume};

    /// Inode numbers of a listing are those of its names only while the directory is unchanged: a number may belong to
    /// another file by the time its metadata is read.
    #[test]
    fn metadata_by_inode_number_is_not_used_after_a_change_of_the_directory() {
        let device = Arc::new(block::MemoryDevice::new(32 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options::default()).unwrap();
        let root = Dir::open(&volume, "/").unwrap();
        root.write("file", "12345").unwrap();
        root.write("other", "").unwrap();
        let sizes = |listing: ReadDir<'_>| {
            let entries = listing.map(|entry| entry.unwrap());
            let mut sizes: Vec<_> =
                entries.map(|entry| (entry.name, entry.metadata.map(|found| found.size))).collect();
            sizes.sort();
            sizes
        };
        let listing = || root.entries().unwrap().with_metadata();
        assert_eq!(sizes(listing()), [(b"file".to_vec(), Some(5)), (b"other".to_vec(), Some(0))]);
        let version = || root.handle().inode().read().core().changecount.get();
        let ino = root.metadata("file").unwrap().ino;
        let size = |version| {
            let mut entry = Entry { name: b"file".to_vec(), ino, file_type: None, metadata: None };
            listing().add_metadata(std::slice::from_mut(&mut entry), version);
            entry.metadata.map(|metadata| metadata.size)
        };
        let before = version();
        assert_eq!(size(before), Some(5));
        root.rename("other", &root, "file").unwrap();
        root.create_file("new").unwrap();
        assert_eq!((size(before), version() > before), (None, true));
        assert_eq!(sizes(listing()), [(b"file".to_vec(), Some(0)), (b"new".to_vec(), Some(0))]);
        drop(root);
        volume.unmount().unwrap();
    }
}
