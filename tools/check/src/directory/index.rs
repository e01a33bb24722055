//! The hash index of a directory and its table of free room, against the entries.

use base::FileBlock;
use format::dabtree::DaTree;
use format::dir::data::{DataBlock, NULL_BEST};
use format::dir::free::{FreeBlock, max_bests};
use format::dir::leaf::{DirLeaf, LEAF1_MAGIC, LeafEntry};
use format::dir::{DataPtr, DirSpace};
use format::fork_block::ForkBlock;
use format::ondisk::U16;
use format::{Damage, Place, hash};

use super::entries::Directory;
use super::{DirectoryWorker, NAME, tell_duplicate};
use crate::hash_tree::{LeafEnds, TreeTotal};
use crate::volume::Volume;

/// More differences than this are not told apart.
const MOST_ENTRIES_COMPARED: usize = 1 << 22;

/// Entries or leaf entries in sum, whatever their order.
#[derive(Clone, Copy, Default)]
pub(super) struct IndexSum {
    count: u64,
    sum: u64,
    /// Some could not be read.
    pub incomplete: bool,
}

impl IndexSum {
    pub fn add(&mut self, hash: u32, address: u32) {
        self.count += 1;
        let word = u64::from(hash) << 32 | u64::from(address);
        let mixed = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.sum = self.sum.wrapping_add((mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb));
    }

    fn matches(&self, other: &Self) -> bool {
        (self.count, self.sum) == (other.count, other.sum)
    }
}

/// What the leaves of one directory say.
#[derive(Default)]
struct Leaves {
    sum: IndexSum,
    last: Option<(u32, u32)>,
    /// The room of each data block, by a leaf alone.
    bests: Option<Vec<u16>>,
}

impl Leaves {
    /// Takes the entries of the next leaf in; `alike` collects those that share a hash.
    fn take(&mut self, entries: &[LeafEntry], alike: &mut Vec<(u32, u32)>) {
        for entry in entries.iter().filter(|entry| entry.pointer() != DataPtr::NULL) {
            let this = (entry.hashval.get(), entry.address.get());
            self.sum.add(this.0, this.1);
            if let Some(last) = self.last.filter(|last| last.0 == this.0) {
                if alike.last() != Some(&last) {
                    alike.push(last);
                }
                alike.push(this);
            }
            self.last = Some(this);
        }
    }
}

impl DirectoryWorker<'_> {
    /// Compares the index and the tables of free room of a directory whose blocks of entries were read.
    pub(super) fn check_index(&mut self, directory: &Directory, single: bool, entries: &IndexSum) {
        let geometry = &self.volume.geometry;
        let beyond = self.blocks.count(DirSpace::Data.end_block(geometry)..FileBlock(u64::MAX));
        self.alike.clear();
        if single {
            let blocks = self.blocks.count(FileBlock(0)..DirSpace::Data.end_block(geometry));
            if beyond > 0 || blocks > 1 << geometry.dir_block_log {
                let found = format!("{} blocks", beyond + blocks);
                self.tell(directory, Damage::new(NAME, "extents", "one directory block", found));
            }
            return self.check_single_names(directory);
        }
        let mut leaves = Leaves::default();
        let Some(total) = self.walk_leaves(directory, &mut leaves) else { return };
        if leaves.bests.is_none() {
            self.check_free_blocks(directory);
        } else if beyond > 1 << geometry.dir_block_log {
            let found = format!("{beyond} blocks");
            self.tell(directory, Damage::new(NAME, "extents", "one leaf block and no free block", found));
        }
        if let Some(bests) = &leaves.bests
            && !entries.incomplete
            && *bests != self.bests
        {
            let damage = Damage::new("directory leaf", "bests", table(&self.bests), table(bests));
            self.tell(directory, damage);
        }
        if total.complete && !entries.incomplete {
            if !entries.matches(&leaves.sum) {
                self.compare_index(directory);
            }
            self.check_names(directory);
        }
    }

    /// Walks all leaves; `None` where there is no root.
    fn walk_leaves(&mut self, directory: &Directory, leaves: &mut Leaves) -> Option<TreeTotal> {
        let volume = self.volume;
        let geometry = &volume.geometry;
        let (from, to) = (DirSpace::Leaf.first_block(geometry), DirSpace::Leaf.end_block(geometry));
        let most = self.blocks.count(from..to) >> geometry.dir_block_log;
        if most == 0 {
            let damage = Damage::new(NAME, "extents", "a leaf behind the blocks of entries", "none");
            self.tell(directory, damage);
            return None;
        }
        let alike = &mut self.alike;
        let mut visit = |bytes: &[u8], at: ForkBlock| {
            let leaf = DirLeaf::verify(bytes, &volume.geometry, at);
            let leaf = match leaf.and_then(|leaf| leaf.audit().map(|()| leaf)) {
                Ok(leaf) => leaf,
                Err(damage) => {
                    volume.error(at.place(), damage);
                    return None;
                }
            };
            if let (Some((last, _)), Some(first)) = (leaves.last, leaf.entries.first())
                && first.hashval.get() < last
            {
                let found = format!("{:#x}", first.hashval);
                let expected = format!("at least {last:#x}, the last of the leaf to the left");
                volume.error(at.place(), Damage::new("directory leaf", "hashval", expected, found));
            }
            leaves.take(leaf.entries, alike);
            leaves.bests = leaf.bests.map(|bests| bests.iter().map(|best: &U16| best.get()).collect());
            Some(LeafEnds { last_hash: leaf.last_hash(), empty: leaf.entries.is_empty() })
        };
        let total = self.tree.walk(volume, &self.blocks, DaTree::Dir, from, most, &mut visit);
        if leaves.bests.is_some() && most > 1 {
            let damage =
                Damage::new("directory leaf", "magic", "a leaf of a tree", format_args!("{LEAF1_MAGIC:#x}"));
            volume.error(Place::ino(directory.ino), damage);
        }
        if total.complete && total.blocks != most {
            let found = format!("{} of {most}", total.blocks);
            self.tell(directory, Damage::new(NAME, "extents", "every leaf block in the tree", found));
        }
        Some(total)
    }

    /// The free blocks tell of exactly the data blocks that exist.
    fn check_free_blocks(&mut self, directory: &Directory) {
        let volume = self.volume;
        let geometry = &volume.geometry;
        let log = geometry.dir_block_log;
        let (first, end) = (DirSpace::Free.first_block(geometry), DirSpace::Free.end_block(geometry));
        let mut next = Some(first);
        let mut told = Vec::new();
        let mut batch = std::mem::take(&mut self.index_batch);
        let mut complete = true;
        while let Some(from) = next {
            next = self.blocks.read_batch(volume, NAME, log, (from, end), &mut batch);
            for unit in &batch.units {
                match take_free(volume, unit.at, batch.bytes_of(unit, geometry, log)) {
                    Some(free) => {
                        let number = (unit.at.file_block.get() - first.get()) >> log;
                        let start = (number as usize).saturating_mul(max_bests(geometry));
                        // Tables in front that are missing tell of no block.
                        told.resize(start.min(self.bests.len()), NULL_BEST);
                        told.extend(free.bests.iter().map(|best| best.get()));
                    }
                    None => complete = false,
                }
            }
        }
        self.index_batch = batch;
        // Behind the last block the table may go on with holes.
        while told.len() > self.bests.len() && told.last() == Some(&NULL_BEST) {
            told.pop();
        }
        if complete && told != self.bests {
            let damage = Damage::new("directory free block", "bests", table(&self.bests), table(&told));
            self.tell(directory, damage);
        }
    }

    /// Makes lists of what the index should have and of what it has, and tells the difference.
    #[cold]
    fn compare_index(&mut self, directory: &Directory) {
        let volume = self.volume;
        let expected = self.list_entries();
        let mut found = Vec::new();
        let geometry = &volume.geometry;
        let from = DirSpace::Leaf.first_block(geometry);
        let most = self.blocks.count(from..DirSpace::Leaf.end_block(geometry));
        let mut visit = |bytes: &[u8], at: ForkBlock| {
            let leaf = DirLeaf::verify(bytes, &volume.geometry, at).ok()?;
            let live = leaf.entries.iter().filter(|entry| entry.pointer() != DataPtr::NULL);
            found.extend(live.map(|entry| (entry.hashval.get(), entry.address.get())));
            found.truncate(MOST_ENTRIES_COMPARED);
            Some(LeafEnds { last_hash: leaf.last_hash(), empty: leaf.entries.is_empty() })
        };
        self.tree.walk(volume, &self.blocks, DaTree::Dir, from, most, &mut visit);
        found.sort_unstable();
        let text = |(hash, address): &(u32, u32)| format!("hash {hash:#x} of the entry at {address:#x}");
        let none = || "none".to_owned();
        let only = |list: &[(u32, u32)], other: &[(u32, u32)]| -> Vec<(u32, u32)> {
            list.iter().filter(|one| other.binary_search(one).is_err()).copied().collect()
        };
        let (missing, surplus) = (only(&expected, &found), only(&found, &expected));
        for entry in &missing {
            let other = surplus.iter().find(|other| other.1 == entry.1).map_or_else(none, text);
            self.tell(directory, Damage::new("directory leaf", "entry", text(entry), other));
        }
        for entry in surplus.iter().filter(|entry| !missing.iter().any(|other| other.1 == entry.1)) {
            self.tell(
                directory,
                Damage::new("directory leaf", "entry", "an entry of the directory", text(entry)),
            );
        }
        if missing.is_empty() && surplus.is_empty() {
            self.tell(
                directory,
                Damage::new("directory leaf", "entry", "each entry once", "one of them twice"),
            );
        }
    }

    /// Hash and address of each entry, sorted.
    fn list_entries(&mut self) -> Vec<(u32, u32)> {
        let mut list = Vec::new();
        self.each_data_block(|data, geometry| {
            let entries = data.entries().flatten();
            list.extend(entries.map(|entry| (hash::entry(entry.name, geometry), entry.pointer.0)));
            list.truncate(MOST_ENTRIES_COMPARED);
        });
        list.sort_unstable();
        list
    }

    fn each_data_block(&mut self, mut each: impl FnMut(&DataBlock<'_>, &format::Geometry)) {
        let geometry = &self.volume.geometry;
        let log = geometry.dir_block_log;
        let end = DirSpace::Data.end_block(geometry);
        let mut batch = std::mem::take(&mut self.index_batch);
        let mut next = Some(FileBlock(0));
        while let Some(from) = next {
            next = self.blocks.read_batch(self.volume, NAME, log, (from, end), &mut batch);
            for unit in &batch.units {
                if let Ok(data) = DataBlock::verify(batch.bytes_of(unit, geometry, log), geometry, unit.at) {
                    each(&data, geometry);
                }
            }
        }
        self.index_batch = batch;
    }

    fn check_single_names(&mut self, directory: &Directory) {
        let mut leaves = Leaves::default();
        let mut alike = std::mem::take(&mut self.alike);
        let Some(unit) = self.batch.units.first() else { return };
        let geometry = &self.volume.geometry;
        let bytes = self.batch.bytes_of(unit, geometry, geometry.dir_block_log);
        if let Ok(data) = DataBlock::verify(bytes, geometry, unit.at)
            && let Some(leaf) = data.block_leaf
        {
            leaves.take(leaf.entries, &mut alike);
        }
        self.alike = alike;
        self.check_names(directory);
    }

    /// Names of one hash are compared with each other: by the entries' addresses, block by block.
    fn check_names(&mut self, directory: &Directory) {
        if self.alike.is_empty() {
            return;
        }
        let mut alike = std::mem::take(&mut self.alike);
        alike.sort_unstable_by_key(|(_, address)| *address);
        let mut names: Vec<(u32, Box<[u8]>)> = Vec::with_capacity(alike.len());
        let volume = self.volume;
        let mut batch = std::mem::take(&mut self.index_batch);
        let mut open: Option<ForkBlock> = None;
        for (hash, address) in &alike {
            let geometry = &volume.geometry;
            let (block, offset) = DataPtr(*address).split(geometry);
            let log = geometry.dir_block_log;
            if open.is_none_or(|open| open.file_block != block) {
                open = self.blocks.read_one(volume, NAME, log, block, &mut batch);
            }
            let (Some(at), Some(unit)) = (open, batch.units.first()) else { continue };
            let entry = DataBlock::verify(batch.bytes_of(unit, geometry, log), geometry, at)
                .and_then(|data| data.entry_at(offset));
            if let Ok(entry) = entry {
                names.push((*hash, entry.name.into()));
            }
        }
        names.sort_unstable();
        for pair in names.windows(2) {
            if let [(left_hash, left), (right_hash, right)] = pair
                && left_hash == right_hash
                && hash::names_match(left, right, &volume.geometry)
            {
                tell_duplicate(volume, Place::ino(directory.ino), right);
            }
        }
        alike.clear();
        (self.alike, self.index_batch) = (alike, batch);
    }

    #[cold]
    fn tell(&self, directory: &Directory, damage: Damage) {
        self.volume.error(Place::ino(directory.ino), damage);
    }
}

/// Verifies a free block.
fn take_free<'a>(volume: &Volume<'_>, at: ForkBlock, bytes: &'a [u8]) -> Option<FreeBlock<'a>> {
    let free = FreeBlock::verify(bytes, &volume.geometry, at);
    match free.and_then(|free| free.audit().map(|()| free)) {
        Ok(free) => {
            volume.check_lsn(at.place(), "directory free block", free.header.lsn.get());
            Some(free)
        }
        Err(damage) => {
            volume.error(at.place(), damage);
            None
        }
    }
}

/// A table of room for a message: its length and where it begins to matter.
fn table(bests: &[u16]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = bests.iter().take(SHOWN).map(u16::to_string).collect();
    let more = if bests.len() > SHOWN { ", ..." } else { "" };
    format!("{} blocks with room {}{more}", bests.len(), shown.join(", "))
}
