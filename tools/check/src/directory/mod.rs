//! Directories in every format.
//!
//! | part | subject |
//! |---|---|
//! | [`entries`] | entries, compared with the inodes that they name |
//! | [`index`] | the hash index and the free index, compared with the entries |
//!
//! # How entries are compared with the hash index
//! Entries and leaf entries are summed up by a hash function that does not depend on their order. If the sums are
//! equal, the index has each entry once, with the right hash. So a directory of any size is checked without a list of
//! its entries; such lists are made only if the sums differ.

pub(crate) mod entries;
mod index;

use base::{FileBlock, Ino};
use format::dir::DirSpace;
use format::dir::data::{DataBlock, NULL_BEST};
use format::dir::shortform::Shortform;
use format::fork_block::ForkBlock;
use format::inode::{Dinode, FileType, Fork, ForkKind};
use format::{Damage, Place, hash};

use crate::block_map::{Batch, BlockMap};
use crate::fork::ForkWalk;
use crate::hash_tree::HashTree;
use crate::inode_map::{AgInodes, CHUNK, InodeMap, state};
use crate::inode_pass::{ChunkRange, ChunkReader};
use crate::volume::Volume;
use entries::{Directory, EntryCheck};
use index::{IndexEntry, IndexSum, index_entry};

const NAME: &str = "directory";

/// State of one worker thread.
pub(crate) struct DirectoryWorker<'v> {
    volume: &'v Volume<'v>,
    map: &'v InodeMap<'v>,
    reader: ChunkReader,
    forks: ForkWalk<'v>,
    blocks: BlockMap,
    batch: Batch,
    index_batch: Batch,
    tree: HashTree,
    /// The largest free space in each data block of the current directory.
    bests: Vec<u16>,
    /// Leaf entries of the current directory that share their hash with another one.
    same_hash: Vec<IndexEntry>,
    pub entries: EntryCheck<'v>,
}

impl<'v> DirectoryWorker<'v> {
    pub fn new(volume: &'v Volume<'v>, map: &'v InodeMap<'v>) -> Self {
        Self {
            volume,
            map,
            reader: ChunkReader::default(),
            forks: ForkWalk::quiet(volume),
            blocks: BlockMap::default(),
            batch: Batch::default(),
            index_batch: Batch::default(),
            tree: HashTree::default(),
            bests: Vec::new(),
            same_hash: Vec::new(),
            entries: EntryCheck::new(volume, map),
        }
    }

    /// Checks the directories in a range of inode chunks.
    pub fn run(&mut self, range: ChunkRange) {
        let Some(inodes) = self.map.ag(range.ag) else { return };
        let chunks = inodes.chunks.get(range.first..range.first + range.count).unwrap_or_default();
        let wanted = |n: usize| inodes.slots(range.first + n).any(|(_, slot)| is_directory(inodes, slot));
        if !(0..chunks.len()).any(wanted) {
            return;
        }
        let mut reader = std::mem::take(&mut self.reader);
        reader.read(self.volume, range.ag, chunks, wanted);
        for n in 0..chunks.len() {
            let slots = inodes.slots(range.first + n);
            for (ag_ino, slot) in slots.filter(|(_, slot)| is_directory(inodes, *slot)) {
                let ino = self.volume.geometry.ino(range.ag, ag_ino);
                let bytes = reader.inode(self.volume, slot - range.first * CHUNK);
                if let Some(inode) = bytes.and_then(|bytes| Dinode::view(bytes, &self.volume.geometry)) {
                    self.check(ino, &inode, inodes.state(slot));
                }
            }
        }
        self.reader = reader;
    }

    fn check(&mut self, ino: Ino, inode: &Dinode<'_>, inode_state: u8) {
        let directory = Directory {
            ino,
            generation: inode.core.generation.get(),
            metadata: inode_state & state::METADATA != 0,
            removed: inode_state & state::ON_UNLINKED_LIST != 0,
        };
        match inode.fork(ForkKind::Data, &self.volume.geometry) {
            Ok(Some(Fork::Local(bytes))) => self.check_shortform(&directory, bytes),
            Ok(Some(Fork::Extents(_) | Fork::Btree(_))) => self.check_blocks(&directory, inode),
            // Reported with the inode.
            _ => self.volume.set_names_missing(),
        }
    }

    fn check_shortform(&mut self, directory: &Directory, bytes: &[u8]) {
        let place = Place::ino(directory.ino);
        let shortform = Shortform::verify(bytes, &self.volume.geometry);
        let Some(shortform) = self.volume.accept(place, shortform) else {
            return self.volume.set_names_missing();
        };
        self.volume.accept(place, shortform.audit());
        self.entries.dot(directory);
        self.entries.dot_dot(directory, shortform.parent);
        self.same_hash.clear();
        for entry in shortform.entries() {
            match entry {
                Ok(entry) => {
                    self.entries.entry(directory, &entry);
                    self.same_hash.push(index_entry(&entry, &self.volume.geometry));
                }
                Err(_) => self.volume.set_names_missing(), // reported by the audit
            }
        }
        self.same_hash.sort_unstable();
        if self.same_hash.windows(2).any(|pair| matches!(pair, [a, b] if a.hash == b.hash)) {
            self.check_shortform_names(&shortform, place);
        }
    }

    /// Compares the names of a shortform directory, some of which have the same hash, with each other.
    #[cold]
    fn check_shortform_names(&self, shortform: &Shortform<'_>, place: Place) {
        let mut names: Vec<&[u8]> = shortform.entries().flatten().map(|entry| entry.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            if let [left, right] = pair
                && hash::names_match(left, right, &self.volume.geometry)
            {
                report_duplicate(self.volume, place, right);
            }
        }
    }

    fn check_blocks(&mut self, directory: &Directory, inode: &Dinode<'_>) {
        let ino = directory.ino;
        self.blocks.reset(ino);
        let blocks = &mut self.blocks;
        let fork = self.forks.walk(ino, inode, ForkKind::Data, None, &mut |extent| blocks.push(extent));
        if !fork.complete {
            return self.volume.set_names_missing();
        }
        let geometry = &self.volume.geometry;
        let space_end = DirSpace::Free.end_block(geometry);
        let fork_end = self.blocks.end(FileBlock(0)..FileBlock(u64::MAX));
        if fork_end > space_end {
            let expected = format!("no blocks after the free space, which ends at {space_end}");
            let damage = Damage::new(NAME, "extents", expected, format!("blocks up to {fork_end}"));
            self.volume.error(Place::ino(ino), damage);
        }
        let end = self.blocks.end(FileBlock(0)..DirSpace::Data.end_block(geometry));
        let size = end.get() << geometry.block_log;
        if inode.core.size.get() != size {
            let expected = format!("{size}, the end of its data blocks");
            let damage = Damage::new("inode", "size", expected, inode.core.size);
            self.volume.error(Place::ino(ino), damage);
        }
        let mut sum = IndexSum::default();
        let is_block_format = self.check_data(directory, &mut sum);
        self.check_index(directory, is_block_format, &sum);
    }

    /// Checks all data blocks and their entries, and sums the entries up. Returns whether the directory is in block
    /// format.
    fn check_data(&mut self, directory: &Directory, sum: &mut IndexSum) -> bool {
        let geometry = &self.volume.geometry;
        let size_log = geometry.dir_block_log;
        let end = DirSpace::Data.end_block(geometry);
        let mut next = Some(FileBlock(0));
        let mut is_block_format = false;
        self.bests.clear();
        let mut batch = std::mem::take(&mut self.batch);
        while let Some(start) = next {
            next = self.blocks.read_batch(self.volume, NAME, size_log, start..end, &mut batch);
            for block in &batch.blocks {
                let bytes = batch.bytes_of(block, geometry, size_log);
                is_block_format |= self.check_data_block(directory, block.at, bytes, sum);
            }
        }
        self.batch = batch;
        if self.bests.is_empty() {
            let damage = Damage::new(NAME, "extents", "a data block", "none");
            self.volume.error(Place::ino(directory.ino), damage);
            self.volume.set_names_missing();
        }
        is_block_format
    }

    fn check_data_block(
        &mut self,
        directory: &Directory,
        at: ForkBlock,
        bytes: &[u8],
        sum: &mut IndexSum,
    ) -> bool {
        let volume = self.volume;
        let number = (at.file_block.get() >> volume.geometry.dir_block_log) as usize;
        // A directory's data space has less than 2^26 blocks.
        self.bests.resize(number + 1, NULL_BEST);
        let data = DataBlock::verify(bytes, &volume.geometry, at);
        let Some(data) = volume.accept(at.place(), data) else {
            sum.incomplete = true;
            volume.set_names_missing();
            return false;
        };
        volume.check_lsn(at.place(), "directory data block", data.header.lsn.get());
        volume.accept(at.place(), data.audit());
        if let Some(best) = self.bests.get_mut(number) {
            *best = data.best();
        }
        for entry in data.entries() {
            let Ok(entry) = entry else {
                // Reported by the audit.
                sum.incomplete = true;
                volume.set_names_missing();
                continue;
            };
            sum.add(index_entry(&entry, &volume.geometry));
            if entry.is_dot() {
                self.entries.dot(directory);
                self.entries.check_dot_type(directory, &entry);
            } else if entry.is_dot_dot() {
                self.entries.dot_dot(directory, entry.ino);
                self.entries.check_dot_type(directory, &entry);
            } else {
                self.entries.entry(directory, &entry);
            }
        }
        data.is_single()
    }
}

fn is_directory(inodes: &AgInodes, slot: usize) -> bool {
    inodes.state(slot) & (state::TYPE | state::DAMAGED) == FileType::Directory.ftype()
}

#[cold]
fn report_duplicate(volume: &Volume<'_>, place: Place, name: &[u8]) {
    let found = format!("a duplicate of \"{}\"", name.escape_ascii());
    volume.error(place, Damage::new(NAME, "name", "unique", found));
}
