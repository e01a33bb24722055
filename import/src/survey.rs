//! How much there is, and how large a volume holds it.

use crate::Result;
use crate::item::{Entry, Item, Kind, Lost, Receiver};

/// Counts what a source gives, without its contents.
#[derive(Clone, Debug)]
pub struct Survey {
    block_size: u64,
    need: Need,
}

/// What a tree takes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
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

/// What an inode holds itself besides its core; what is larger takes a block.
const INLINE: u64 = 300;

impl Survey {
    /// Of a volume with such blocks.
    pub fn new(block_size: u32) -> Self {
        Self { block_size: block_size.into(), need: Need::default() }
    }

    /// What was counted.
    pub fn need(&self) -> Need {
        self.need
    }

    fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block_size)
    }

    fn count(&mut self, entry: &Entry) {
        self.need.files += 1;
        self.need.other_blocks += self.name(entry);
        let attributes = entry.facts.attributes.iter();
        let bytes: u64 = attributes.map(|(name, value)| (name.len() + value.len() + 16) as u64).sum();
        // A value that fills most of a block has some of its own, each with a header.
        if bytes > INLINE / 2 {
            self.need.other_blocks += self.blocks(bytes * 9 / 8) + 1;
        }
        match &entry.kind {
            Kind::Link(_) => return,
            Kind::File { size, .. } => {
                let stored =
                    entry.facts.stored.map_or(*size, |stored| stored.min(size.next_multiple_of(512)));
                self.need.bytes += stored.min(*size);
                self.need.data_blocks += self.blocks(stored);
            }
            Kind::Symlink(target) if target.len() as u64 > INLINE => self.need.other_blocks += 1,
            Kind::Directory => self.need.other_blocks += 1,
            _ => {}
        }
        self.need.inodes += 1;
    }

    /// What a name takes of its directory: the entry itself, its hash, and the rest of blocks that are split. It is
    /// counted in 1/16 of a block, which many small ones share.
    fn name(&self, entry: &Entry) -> u64 {
        let length = crate::item::split(&entry.path).map_or(0, |(_, name)| name.len() as u64);
        let bytes = (length + 12).next_multiple_of(8) + 8;
        let before = (self.need.files - 1) * bytes * 2 / self.block_size;
        self.need.files * bytes * 2 / self.block_size - before
    }
}

impl Need {
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
        if let Item::Entry(entry) = item {
            self.count(&entry);
        }
        Ok(())
    }

    fn lose(&mut self, _: Lost, _: &[u8]) {}
}
