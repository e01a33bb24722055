//! Directories: every form verified, every entry followed.
//!
//! | part | subject |
//! |---|---|
//! | [`entries`] | one entry against the inode that it names |
//! | [`index`] | the hash index and the table of free room against the entries |
//!
//! # How names are compared with their index
//! Entries and leaf entries are summed up by a function that does not depend on their order. Equal sums mean that the
//! index has each entry once, under its hash, so that a directory of any size is checked without a list of its
//! entries; where they differ, a second walk makes the lists.

pub(crate) mod entries;
mod index;

use base::{FileBlock, Ino};
use format::dir::DirSpace;
use format::dir::data::{DataBlock, NULL_BEST};
use format::dir::shortform::Shortform;
use format::fork_block::ForkBlock;
use format::inode::{Dinode, Fork, ForkKind};
use format::{Damage, Place, hash};

use crate::block_map::{Batch, BlockMap};
use crate::fork::ForkWalk;
use crate::hash_tree::HashTree;
use crate::inode_map::CHUNK;
use crate::inode_map::{AgInodes, InodeMap, state};
use crate::inode_pass::{ChunkReader, Unit};
use crate::volume::Volume;
use entries::{Directory, Names};
use index::IndexSum;

const NAME: &str = "directory";

/// One worker of the phase.
pub(crate) struct DirectoryWorker<'v> {
    volume: &'v Volume<'v>,
    map: &'v InodeMap<'v>,
    reader: ChunkReader,
    forks: ForkWalk<'v>,
    blocks: BlockMap,
    batch: Batch,
    index_batch: Batch,
    tree: HashTree,
    /// Largest unused region of each data block of the directory at hand.
    bests: Vec<u16>,
    /// Leaf entries that share their hash with a neighbour: hash and address.
    alike: Vec<(u32, u32)>,
    pub names: Names<'v>,
}

impl<'v> DirectoryWorker<'v> {
    pub fn new(volume: &'v Volume<'v>, map: &'v InodeMap<'v>) -> Self {
        Self {
            volume,
            map,
            reader: ChunkReader::new(),
            forks: ForkWalk::quiet(volume),
            blocks: BlockMap::default(),
            batch: Batch::default(),
            index_batch: Batch::default(),
            tree: HashTree::default(),
            bests: Vec::new(),
            alike: Vec::new(),
            names: Names::new(volume, map),
        }
    }

    /// Checks the directories of a unit of inode chunks.
    pub fn run(&mut self, unit: Unit) {
        let Some(inodes) = self.map.ag(unit.ag) else { return };
        let chunks = inodes.chunks.get(unit.first..unit.first + unit.count).unwrap_or_default();
        let wanted = |n: usize| inodes.slots(unit.first + n).any(|(_, slot)| is_directory(inodes, slot));
        if !(0..chunks.len()).any(wanted) {
            return;
        }
        let mut reader = std::mem::replace(&mut self.reader, ChunkReader::new());
        reader.read(self.volume, unit.ag, chunks, wanted);
        for n in 0..chunks.len() {
            for (within, slot) in inodes.slots(unit.first + n).filter(|(_, slot)| is_directory(inodes, *slot))
            {
                let ino = self.volume.geometry.ino(unit.ag, within);
                let bytes = reader.inode(self.volume, slot - unit.first * CHUNK);
                if let Some(inode) = bytes.and_then(|bytes| Dinode::view(bytes, &self.volume.geometry)) {
                    self.check(ino, &inode, inodes.state(slot));
                }
            }
        }
        self.reader = reader;
    }

    fn check(&mut self, ino: Ino, inode: &Dinode<'_>, now: u8) {
        let directory = Directory {
            ino,
            generation: inode.core.generation.get(),
            metadata: now & state::METADATA != 0,
            removed: now & state::ON_LIST != 0,
        };
        match inode.fork(ForkKind::Data, &self.volume.geometry) {
            Ok(Some(Fork::Local(bytes))) => self.check_shortform(&directory, bytes),
            Ok(Some(Fork::Extents(_) | Fork::Btree(_))) => self.check_blocks(&directory, inode),
            // Reported with the inode.
            _ => self.volume.miss_names(),
        }
    }

    fn check_shortform(&mut self, directory: &Directory, bytes: &[u8]) {
        let place = Place::ino(directory.ino);
        let form = match Shortform::verify(bytes, &self.volume.geometry) {
            Ok(form) => form,
            Err(damage) => {
                self.volume.error(place, damage);
                return self.volume.miss_names();
            }
        };
        if let Err(damage) = form.audit() {
            self.volume.error(place, damage);
        }
        self.names.dot(directory);
        self.names.dot_dot(directory, form.parent);
        self.alike.clear();
        for entry in form.entries() {
            match entry {
                Ok(entry) => {
                    self.names.entry(directory, &entry);
                    self.alike.push((hash::entry(entry.name, &self.volume.geometry), entry.pointer.0));
                }
                Err(_) => self.volume.miss_names(), // told by the audit
            }
        }
        self.alike.sort_unstable();
        if self.alike.windows(2).any(|pair| matches!(pair, [(left, _), (right, _)] if left == right)) {
            self.check_shortform_names(&form, place);
        }
    }

    /// A short-form directory has no index: names of one hash are compared with each other.
    #[cold]
    fn check_shortform_names(&self, form: &Shortform<'_>, place: Place) {
        let mut names: Vec<&[u8]> = form.entries().flatten().map(|entry| entry.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            if let [left, right] = pair
                && hash::names_match(left, right, &self.volume.geometry)
            {
                tell_duplicate(self.volume, place, right);
            }
        }
    }

    fn check_blocks(&mut self, directory: &Directory, inode: &Dinode<'_>) {
        let ino = directory.ino;
        self.blocks.reset(ino);
        let blocks = &mut self.blocks;
        let total = self.forks.run(ino, inode, ForkKind::Data, None, &mut |extent| blocks.push(extent));
        if !total.complete {
            return self.volume.miss_names();
        }
        let geometry = &self.volume.geometry;
        if self.blocks.end(FileBlock(0)..FileBlock(u64::MAX)) > DirSpace::Free.end_block(geometry) {
            let damage = Damage::new(NAME, "extents", "blocks within its three spaces", "blocks behind them");
            self.volume.error(Place::ino(ino), damage);
        }
        let end = self.blocks.end(FileBlock(0)..DirSpace::Data.end_block(geometry));
        let size = end.get() << geometry.block_log;
        if inode.core.size.get() != size {
            let found = inode.core.size;
            self.volume.error(
                Place::ino(ino),
                Damage::new("inode", "size", format_args!("{size}, the end of its entries"), found),
            );
        }
        let mut sum = IndexSum::default();
        let single = self.check_data(directory, &mut sum);
        self.check_index(directory, single, &sum);
    }

    /// Verifies every block of entries, follows the entries, and sums them up. Returns whether one block is the whole
    /// directory.
    fn check_data(&mut self, directory: &Directory, sum: &mut IndexSum) -> bool {
        let geometry = &self.volume.geometry;
        let log = geometry.dir_block_log;
        let end = DirSpace::Data.end_block(geometry);
        let mut next = Some(FileBlock(0));
        let mut single = false;
        self.bests.clear();
        let mut batch = std::mem::take(&mut self.batch);
        while let Some(from) = next {
            next = self.blocks.read_batch(self.volume, NAME, log, (from, end), &mut batch);
            for unit in &batch.units {
                let bytes = batch.bytes_of(unit, geometry, log);
                single |= self.check_data_block(directory, unit.at, bytes, sum);
            }
        }
        self.batch = batch;
        if self.bests.is_empty() {
            let damage = Damage::new(NAME, "extents", "a first block of entries", "none");
            self.volume.error(Place::ino(directory.ino), damage);
            self.volume.miss_names();
        }
        single
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
        let data = match DataBlock::verify(bytes, &volume.geometry, at) {
            Ok(data) => data,
            Err(damage) => {
                sum.incomplete = true;
                volume.error(at.place(), damage);
                volume.miss_names();
                return false;
            }
        };
        volume.check_lsn(at.place(), "directory data block", data.header.lsn.get());
        if let Err(damage) = data.audit() {
            volume.error(at.place(), damage);
        }
        if let Some(best) = self.bests.get_mut(number) {
            *best = data.best();
        }
        for entry in data.entries() {
            let Ok(entry) = entry else {
                // Told by the audit.
                sum.incomplete = true;
                volume.miss_names();
                continue;
            };
            sum.add(hash::entry(entry.name, &volume.geometry), entry.pointer.0);
            if entry.is_dot() {
                self.names.dot(directory);
                self.names.check_dot_type(directory, &entry);
            } else if entry.is_dot_dot() {
                self.names.dot_dot(directory, entry.ino);
                self.names.check_dot_type(directory, &entry);
            } else {
                self.names.entry(directory, &entry);
            }
        }
        data.is_single()
    }
}

fn is_directory(inodes: &AgInodes, slot: usize) -> bool {
    // 2 is the directory entries' number for a directory.
    inodes.state(slot) & (state::TYPE | state::DAMAGED) == 2
}

#[cold]
fn tell_duplicate(volume: &Volume<'_>, place: Place, name: &[u8]) {
    let found = format!("\"{}\" twice", name.escape_ascii());
    volume.error(place, Damage::new(NAME, "name", "each name once", found));
}
