//! Counts the files of a source, and estimates the space that they need in a volume.

use base::time::Time;

use crate::item::{Entry, EntryKind, Item, Loss, Receiver, StoredSize};
use crate::options::setters;
use crate::{Cancel, Error, Result};

/// Counts the files of a source, without reading contents.
#[derive(Clone, Debug)]
pub struct Survey {
    block_size: u64,
    estimate: SpaceEstimate,
    /// Bytes of directory entries.
    name_bytes: u64,
    newest: Time,
    skip_unreadable: bool,
    cancel: Cancel,
}

/// Space that a tree needs in a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceEstimate {
    /// Files of all types, with each of their names.
    pub files: u64,
    /// Inodes.
    pub inodes: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Blocks of contents.
    pub data_blocks: u64,
    /// Maximum number of blocks of directories, attributes and long symlinks.
    pub other_blocks: u64,
}

/// The properties of a file that determine its space.
#[derive(Clone, Copy, Debug)]
pub struct FileEstimate {
    /// Length of its name in bytes.
    pub name: usize,
    /// Bytes of its attributes, with their headers.
    pub attributes: u64,
    /// File type.
    pub what: FileClass,
    /// Modification time (mtime).
    pub modified: Time,
}

/// File types, as far as they differ in space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileClass {
    /// A further name of a file that was counted.
    Name,
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// Size without holes.
        stored: StoredSize,
    },
    /// A symlink, with the length of its target.
    Symlink(u64),
    /// A directory.
    Directory,
    /// A special file: only an inode.
    Other,
}

/// Bytes in an inode beside its core; larger forks need a block.
const INLINE: u64 = 300;
/// Size of an extent record in a file's map, in bytes.
const MAPPING: u64 = 16;

impl Survey {
    /// An empty survey for volumes with this block size.
    pub fn new(block_size: u32) -> Self {
        let (estimate, newest) = (SpaceEstimate::default(), Time::default());
        Self {
            block_size: block_size.into(),
            estimate,
            name_bytes: 0,
            newest,
            skip_unreadable: false,
            cancel: Cancel::default(),
        }
    }

    setters! {
        /// Skips unreadable files. By default, they are errors.
        skip_unreadable: bool;
        /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`] of a clone.
        cancel: Cancel;
    }

    /// Fails if it is cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.cancel.check()
    }

    /// An empty survey with the same options.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self { estimate: SpaceEstimate::default(), name_bytes: 0, newest: Time::default(), ..self.clone() }
    }

    /// The estimate. Names need their entries and hashes, and the free part of blocks that were split.
    pub fn estimate(&self) -> SpaceEstimate {
        let names = self.name_bytes * 2 / self.block_size;
        SpaceEstimate { other_blocks: self.estimate.other_blocks + names, ..self.estimate }
    }

    /// The newest modification time.
    pub fn newest(&self) -> Time {
        self.newest
    }

    /// Adds the counts of another survey.
    pub fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.estimate, &other.estimate);
        sum.files += more.files;
        sum.inodes += more.inodes;
        sum.bytes += more.bytes;
        sum.data_blocks += more.data_blocks;
        sum.other_blocks += more.other_blocks;
        self.name_bytes += other.name_bytes;
        self.newest = self.newest.max(other.newest);
    }

    fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block_size)
    }

    /// Counts a file.
    pub fn count(&mut self, seen: &FileEstimate) {
        self.estimate.files += 1;
        self.name_bytes += (seen.name as u64 + 12).next_multiple_of(8) + 8;
        self.newest = self.newest.max(seen.modified);
        // A value that fills most of a block has blocks of its own, each with a header. Many attributes split blocks,
        // which are then at least half full.
        if seen.attributes > INLINE / 2 {
            let times = if seen.attributes > self.block_size { 16 } else { 9 };
            self.estimate.other_blocks += self.blocks(seen.attributes * times / 8) + 1;
        }
        match seen.what {
            FileClass::Name => return,
            FileClass::File { size, stored } => {
                self.estimate.bytes += stored.bytes.min(size);
                self.estimate.data_blocks += stored.blocks(size, self.block_size);
                // Leaves of the map are at least half full.
                self.estimate.other_blocks += stored.runs * MAPPING * 2 / self.block_size;
            }
            FileClass::Symlink(target) if target > INLINE => self.estimate.other_blocks += 1,
            FileClass::Directory => self.estimate.other_blocks += 1,
            FileClass::Symlink(_) | FileClass::Other => {}
        }
        self.estimate.inodes += 1;
    }
}

/// Bytes of attributes with their headers.
pub fn attribute_bytes(attributes: &[(Vec<u8>, Vec<u8>)]) -> u64 {
    attributes.iter().map(|(name, value)| (name.len() + value.len() + 16) as u64).sum()
}

impl From<&Entry> for FileEstimate {
    fn from(entry: &Entry) -> Self {
        let metadata = &entry.metadata;
        let what = match &entry.kind {
            EntryKind::Link(_) => FileClass::Name,
            EntryKind::File { size, .. } => {
                FileClass::File { size: *size, stored: metadata.stored.unwrap_or(StoredSize::whole(*size)) }
            }
            EntryKind::Symlink(target) => FileClass::Symlink(target.len() as u64),
            EntryKind::Directory => FileClass::Directory,
            _ => FileClass::Other,
        };
        let name = crate::item::split(&entry.path).map_or(0, |(_, name)| name.len());
        let attributes = attribute_bytes(&metadata.attributes);
        Self { name, attributes, what, modified: metadata.modified.unwrap_or_default() }
    }
}

impl SpaceEstimate {
    /// Number of blocks, with a reserve for btrees.
    pub fn blocks(&self, block_size: u32, inode_size: u32) -> u64 {
        let chunks = self.inodes.div_ceil(64) + 64;
        let inodes = (chunks * 64 * u64::from(inode_size)).div_ceil(block_size.into());
        let all = self.data_blocks + self.other_blocks + inodes;
        // Maps of files and btrees of the AGs: some bytes per extent, and mostly one extent per file.
        all + all / 64 + self.inodes / 32 + 64
    }
}

impl Receiver for Survey {
    fn take(&mut self, item: Item) -> Result<()> {
        self.cancel.check()?;
        if let Item::Entry(entry) = item {
            self.count(&FileEstimate::from(&entry));
        }
        Ok(())
    }

    fn lose(&mut self, _: Loss) {}

    fn unreadable(&mut self, error: Error) -> Result<()> {
        if self.skip_unreadable { Ok(()) } else { Err(error) }
    }
}
