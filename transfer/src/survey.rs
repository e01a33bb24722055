//! How much there is, and how large a volume holds it.

use base::time::Time;

use crate::item::{Entry, Item, Kind, Lost, Receiver, Stored};
use crate::{Cancel, Error, Result};

/// Counts what a source has, without its contents.
#[derive(Clone, Debug)]
pub struct Survey {
    block_size: u64,
    estimate: SpaceEstimate,
    /// Bytes of entries in directories.
    name_bytes: u64,
    newest: Time,
    ignores_unreadable: bool,
    cancel: Cancel,
}

/// What a tree takes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceEstimate {
    /// Files of every kind, with each name of a file.
    pub files: u64,
    /// Inodes.
    pub inodes: u64,
    /// Bytes of contents, holes left out.
    pub bytes: u64,
    /// Blocks of contents.
    pub data_blocks: u64,
    /// Blocks of directories, attributes and long links, at most.
    pub other_blocks: u64,
}

/// What matters of a file.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Bytes of its name.
    pub name: usize,
    /// Bytes of its attributes' names and values, with what each takes beside them.
    pub attributes: u64,
    /// What it is.
    pub what: What,
    /// Last change of its contents.
    pub modified: Time,
}

/// What a file is, as far as it takes space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// One more name of a file that was seen.
    Name,
    /// A regular file, and how many of its bytes lie in no hole.
    File {
        /// Bytes.
        size: u64,
        /// Its data.
        stored: Stored,
    },
    /// A symbolic link, and the bytes of its target.
    Symlink(u64),
    /// A directory.
    Directory,
    /// What has nothing but an inode.
    Other,
}

/// What an inode holds itself besides its core; what is larger takes a block.
const INLINE: u64 = 300;
/// Bytes of an extent in the map of a file.
const MAPPING: u64 = 16;

impl Survey {
    /// Of a volume with such blocks.
    pub fn new(block_size: u32) -> Self {
        let (estimate, newest) = (SpaceEstimate::default(), Time::default());
        Self {
            block_size: block_size.into(),
            estimate,
            name_bytes: 0,
            newest,
            ignores_unreadable: false,
            cancel: Cancel::default(),
        }
    }

    /// Whether what cannot be read is not counted, and no error.
    #[must_use]
    pub fn ignoring_unreadable(mut self, ignores: bool) -> Self {
        self.ignores_unreadable = ignores;
        self
    }

    /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`].
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Fails if it is cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.cancel.check()
    }

    /// One that has seen nothing, for the same volume.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self { estimate: SpaceEstimate::default(), name_bytes: 0, newest: Time::default(), ..self.clone() }
    }

    /// What was counted. Names take what their entries and hashes do, and the rest of blocks that are split.
    pub fn estimate(&self) -> SpaceEstimate {
        let names = self.name_bytes * 2 / self.block_size;
        SpaceEstimate { other_blocks: self.estimate.other_blocks + names, ..self.estimate }
    }

    /// The last change of anything.
    pub fn newest(&self) -> Time {
        self.newest
    }

    /// Adds what another has counted.
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
    pub fn count(&mut self, seen: &Seen) {
        self.estimate.files += 1;
        self.name_bytes += (seen.name as u64 + 12).next_multiple_of(8) + 8;
        self.newest = self.newest.max(seen.modified);
        // A value that fills most of a block has some of its own, each with a header. Where there are many, blocks are
        // split, and are half full at worst.
        if seen.attributes > INLINE / 2 {
            let times = if seen.attributes > self.block_size { 16 } else { 9 };
            self.estimate.other_blocks += self.blocks(seen.attributes * times / 8) + 1;
        }
        match seen.what {
            What::Name => return,
            What::File { size, stored } => {
                self.estimate.bytes += stored.bytes.min(size);
                self.estimate.data_blocks += stored.blocks(size, self.block_size);
                // Leaves of the map that are half full.
                self.estimate.other_blocks += stored.runs * MAPPING * 2 / self.block_size;
            }
            What::Symlink(target) if target > INLINE => self.estimate.other_blocks += 1,
            What::Directory => self.estimate.other_blocks += 1,
            What::Symlink(_) | What::Other => {}
        }
        self.estimate.inodes += 1;
    }
}

/// What attributes take of a file.
pub fn attribute_bytes(attributes: &[(Vec<u8>, Vec<u8>)]) -> u64 {
    attributes.iter().map(|(name, value)| (name.len() + value.len() + 16) as u64).sum()
}

impl From<&Entry> for Seen {
    fn from(entry: &Entry) -> Self {
        let facts = &entry.facts;
        let what = match &entry.kind {
            Kind::Link(_) => What::Name,
            Kind::File { size, .. } => {
                What::File { size: *size, stored: facts.stored.unwrap_or(Stored::whole(*size)) }
            }
            Kind::Symlink(target) => What::Symlink(target.len() as u64),
            Kind::Directory => What::Directory,
            _ => What::Other,
        };
        let name = crate::item::split(&entry.path).map_or(0, |(_, name)| name.len());
        let attributes = attribute_bytes(&facts.attributes);
        Self { name, attributes, what, modified: facts.modified.unwrap_or_default() }
    }
}

impl SpaceEstimate {
    /// Blocks of a volume with inodes of such a size, with a reserve for its trees.
    pub fn blocks(&self, block_size: u32, inode_size: u32) -> u64 {
        let chunks = self.inodes.div_ceil(64) + 64;
        let inodes = (chunks * 64 * u64::from(inode_size)).div_ceil(block_size.into());
        let all = self.data_blocks + self.other_blocks + inodes;
        // Maps of files, and the trees of the groups: few bytes for each extent, and mostly one extent for each file.
        all + all / 64 + self.inodes / 32 + 64
    }
}

impl Receiver for Survey {
    fn take(&mut self, item: Item) -> Result<()> {
        self.cancel.check()?;
        if let Item::Entry(entry) = item {
            self.count(&Seen::from(&entry));
        }
        Ok(())
    }

    fn lose(&mut self, _: Lost) {}

    fn unreadable(&mut self, error: Error) -> Result<()> {
        if self.ignores_unreadable { Ok(()) } else { Err(error) }
    }
}
