//! The hash index and the free index of a directory, compared with its entries.

use base::FileBlock;
use format::dabtree::DaTree;
use format::dir::data::{DataBlock, NULL_BEST};
use format::dir::free::{FreeBlock, max_bests};
use format::dir::leaf::{DirLeaf, LEAF1_MAGIC, LeafEntry};
use format::dir::{DataPtr, DirEntry, DirSpace};
use format::fork_block::ForkBlock;
use format::ondisk::U16;
use format::{Damage, Geometry, Place, hash};

use super::entries::Directory;
use super::{DirectoryWorker, NAME, report_duplicate};
use crate::hash_tree::LeafSummary;
use crate::tree::TreeSize;
use crate::volume::Volume;

/// Maximum number of entries that are listed to find differences.
const MAX_ENTRIES_COMPARED: usize = 1 << 22;

/// A sum over entries or over leaf entries, which does not depend on their order.
#[derive(Clone, Copy, Default)]
pub(super) struct IndexSum {
    count: u64,
    sum: u64,
    /// Some entries could not be read.
    pub incomplete: bool,
}

/// Hash and address of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IndexEntry {
    pub hash: u32,
    pub address: u32,
}

impl From<&LeafEntry> for IndexEntry {
    fn from(entry: &LeafEntry) -> Self {
        Self { hash: entry.hashval.get(), address: entry.address.get() }
    }
}

impl std::fmt::Display for IndexEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hash {:#x} of the entry at {:#x}", self.hash, self.address)
    }
}

impl IndexSum {
    pub fn add(&mut self, entry: IndexEntry) {
        self.count += 1;
        let word = u64::from(entry.hash) << 32 | u64::from(entry.address);
        let mixed = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.sum = self.sum.wrapping_add((mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb));
    }

    fn matches(&self, other: &Self) -> bool {
        (self.count, self.sum) == (other.count, other.sum)
    }
}

/// The leaves of one directory.
#[derive(Default)]
struct Leaves {
    sum: IndexSum,
    last: Option<IndexEntry>,
    /// The free index, which a directory in leaf format has in its only leaf.
    bests: Option<Vec<u16>>,
}

impl Leaves {
    /// Adds the entries of the next leaf. Appends those that share a hash to `same_hash`.
    fn add(&mut self, entries: &[LeafEntry], same_hash: &mut Vec<IndexEntry>) {
        for entry in entries.iter().filter(|entry| entry.pointer() != DataPtr::NULL) {
            let entry = IndexEntry::from(entry);
            self.sum.add(entry);
            if let Some(last) = self.last.filter(|last| last.hash == entry.hash) {
                if same_hash.last() != Some(&last) {
                    same_hash.push(last);
                }
                same_hash.push(entry);
            }
            self.last = Some(entry);
        }
    }
}

impl DirectoryWorker<'_> {
    /// Checks the indexes of a directory whose data blocks were read. `is_block_format`: there is only one block.
    pub(super) fn check_index(&mut self, directory: &Directory, is_block_format: bool, entries: &IndexSum) {
        let geometry = &self.volume.geometry;
        let after_data = self.blocks.count(DirSpace::Data.end_block(geometry)..FileBlock(u64::MAX));
        self.same_hash.clear();
        if is_block_format {
            let blocks = self.blocks.count(FileBlock(0)..DirSpace::Data.end_block(geometry));
            if after_data > 0 || blocks > 1 << geometry.dir_block_log {
                let found = format!("{} blocks", after_data + blocks);
                self.report(directory, Damage::new(NAME, "extents", "one directory block", found));
            }
            return self.check_block_format_names(directory);
        }
        let mut leaves = Leaves::default();
        let Some(tree) = self.walk_leaves(directory, &mut leaves) else { return };
        if leaves.bests.is_none() {
            self.check_free_blocks(directory);
        } else if after_data > 1 << geometry.dir_block_log {
            let found = format!("{after_data} blocks");
            self.report(directory, Damage::new(NAME, "extents", "one leaf block and no free block", found));
        }
        if let Some(bests) = &leaves.bests
            && !entries.incomplete
            && *bests != self.bests
        {
            let damage = Damage::new("directory leaf", "bests", show_bests(&self.bests), show_bests(bests));
            self.report(directory, damage);
        }
        if tree.complete && !entries.incomplete {
            if !entries.matches(&leaves.sum) {
                self.compare_index(directory);
            }
            self.check_names(directory);
        }
    }

    /// Walks all leaves. Returns `None` if there are none.
    fn walk_leaves(&mut self, directory: &Directory, leaves: &mut Leaves) -> Option<TreeSize> {
        let volume = self.volume;
        let geometry = &volume.geometry;
        let (root, end) = (DirSpace::Leaf.first_block(geometry), DirSpace::Leaf.end_block(geometry));
        let max_blocks = self.blocks.count(root..end) >> geometry.dir_block_log;
        if max_blocks == 0 {
            self.report(directory, Damage::new(NAME, "extents", "a leaf block", "none"));
            return None;
        }
        let same_hash = &mut self.same_hash;
        let mut visit = |bytes: &[u8], at: ForkBlock| {
            let leaf = DirLeaf::verify(bytes, &volume.geometry, at);
            let leaf = volume.accept(at.place(), leaf.and_then(|leaf| leaf.audit().map(|()| leaf)))?;
            if let (Some(last), Some(first)) = (leaves.last, leaf.entries.first())
                && first.hashval.get() < last.hash
            {
                let found = format!("{:#x}", first.hashval);
                let expected = format!("at least {:#x}, the last hash of the left sibling", last.hash);
                volume.error(at.place(), Damage::new("directory leaf", "hashval", expected, found));
            }
            leaves.add(leaf.entries, same_hash);
            leaves.bests = leaf.bests.map(|bests| bests.iter().map(|best: &U16| best.get()).collect());
            Some(LeafSummary { last_hash: leaf.last_hash(), empty: leaf.entries.is_empty() })
        };
        let tree = self.tree.walk(volume, &self.blocks, DaTree::Dir, root, max_blocks, &mut visit);
        if leaves.bests.is_some() && max_blocks > 1 {
            let found = format_args!("{LEAF1_MAGIC:#x}").to_string();
            let damage = Damage::new("directory leaf", "magic", "that of a leaf below a node", found);
            volume.error(Place::ino(directory.ino), damage);
        }
        if tree.complete && tree.blocks != max_blocks {
            let found = format!("{} of {max_blocks}", tree.blocks);
            self.report(directory, Damage::new(NAME, "extents", "all leaf blocks in the hash tree", found));
        }
        Some(tree)
    }

    /// Compares the free index in free blocks with the data blocks.
    fn check_free_blocks(&mut self, directory: &Directory) {
        let volume = self.volume;
        let geometry = &volume.geometry;
        let size_log = geometry.dir_block_log;
        let (first, end) = (DirSpace::Free.first_block(geometry), DirSpace::Free.end_block(geometry));
        let mut next = Some(first);
        let mut bests = Vec::new();
        let mut batch = std::mem::take(&mut self.index_batch);
        let mut complete = true;
        while let Some(start) = next {
            next = self.blocks.read_batch(volume, NAME, size_log, start..end, &mut batch);
            for block in &batch.blocks {
                match verify_free_block(volume, block.at, batch.bytes_of(block, geometry, size_log)) {
                    Some(free) => {
                        let number = (block.at.file_block.get() - first.get()) >> size_log;
                        let start = (number as usize).saturating_mul(max_bests(geometry));
                        // A missing free block says that its data blocks do not exist.
                        bests.resize(start.min(self.bests.len()), NULL_BEST);
                        bests.extend(free.bests.iter().map(|best| best.get()));
                    }
                    None => complete = false,
                }
            }
        }
        self.index_batch = batch;
        // The index may continue after the last data block, without blocks.
        while bests.len() > self.bests.len() && bests.last() == Some(&NULL_BEST) {
            bests.pop();
        }
        if complete && bests != self.bests {
            let (expected, found) = (show_bests(&self.bests), show_bests(&bests));
            self.report(directory, Damage::new("directory free block", "bests", expected, found));
        }
    }

    /// Lists the entries and the leaf entries, and reports the differences.
    #[cold]
    fn compare_index(&mut self, directory: &Directory) {
        let volume = self.volume;
        let expected = self.list_entries();
        let mut found: Vec<IndexEntry> = Vec::new();
        let geometry = &volume.geometry;
        let root = DirSpace::Leaf.first_block(geometry);
        let max_blocks = self.blocks.count(root..DirSpace::Leaf.end_block(geometry));
        let mut visit = |bytes: &[u8], at: ForkBlock| {
            let leaf = DirLeaf::verify(bytes, &volume.geometry, at).ok()?;
            let live = leaf.entries.iter().filter(|entry| entry.pointer() != DataPtr::NULL);
            found.extend(live.map(IndexEntry::from));
            found.truncate(MAX_ENTRIES_COMPARED);
            Some(LeafSummary { last_hash: leaf.last_hash(), empty: leaf.entries.is_empty() })
        };
        self.tree.walk(volume, &self.blocks, DaTree::Dir, root, max_blocks, &mut visit);
        found.sort_unstable();
        let difference = |list: &[IndexEntry], other: &[IndexEntry]| -> Vec<IndexEntry> {
            list.iter().filter(|entry| other.binary_search(entry).is_err()).copied().collect()
        };
        let at_address =
            |list: &[IndexEntry], address: u32| list.iter().find(|entry| entry.address == address).copied();
        let report =
            |expected, found| self.report(directory, Damage::new("directory leaf", "entry", expected, found));
        let (missing, surplus) = (difference(&expected, &found), difference(&found, &expected));
        for entry in &missing {
            let other = at_address(&surplus, entry.address);
            report(entry.to_string(), other.map_or_else(|| "none".to_owned(), |other| other.to_string()));
        }
        for entry in surplus.iter().filter(|entry| at_address(&missing, entry.address).is_none()) {
            report("an entry of the directory".to_owned(), entry.to_string());
        }
        if missing.is_empty() && surplus.is_empty() {
            report("each entry once".to_owned(), "a duplicate".to_owned());
        }
    }

    /// Hash and address of each entry, sorted.
    fn list_entries(&mut self) -> Vec<IndexEntry> {
        let geometry = &self.volume.geometry;
        let size_log = geometry.dir_block_log;
        let end = DirSpace::Data.end_block(geometry);
        let mut batch = std::mem::take(&mut self.index_batch);
        let mut list = Vec::new();
        let mut next = Some(FileBlock(0));
        while let Some(start) = next {
            next = self.blocks.read_batch(self.volume, NAME, size_log, start..end, &mut batch);
            for block in &batch.blocks {
                let bytes = batch.bytes_of(block, geometry, size_log);
                if let Ok(data) = DataBlock::verify(bytes, geometry, block.at) {
                    let entries = data.entries().flatten();
                    list.extend(entries.map(|entry| index_entry(&entry, geometry)));
                    list.truncate(MAX_ENTRIES_COMPARED);
                }
            }
        }
        self.index_batch = batch;
        list.sort_unstable();
        list
    }

    fn check_block_format_names(&mut self, directory: &Directory) {
        let Some(block) = self.batch.blocks.first() else { return };
        let geometry = &self.volume.geometry;
        let bytes = self.batch.bytes_of(block, geometry, geometry.dir_block_log);
        if let Ok(data) = DataBlock::verify(bytes, geometry, block.at)
            && let Some(leaf) = data.block_leaf
        {
            Leaves::default().add(leaf.entries, &mut self.same_hash);
        }
        self.check_names(directory);
    }

    /// Compares names of one hash with each other. They are read in order of their addresses.
    fn check_names(&mut self, directory: &Directory) {
        if self.same_hash.is_empty() {
            return;
        }
        let mut same_hash = std::mem::take(&mut self.same_hash);
        same_hash.sort_unstable_by_key(|entry| entry.address);
        let mut names: Vec<(u32, Box<[u8]>)> = Vec::with_capacity(same_hash.len());
        let volume = self.volume;
        let mut batch = std::mem::take(&mut self.index_batch);
        let mut current: Option<ForkBlock> = None;
        for IndexEntry { hash, address } in &same_hash {
            let geometry = &volume.geometry;
            let (file_block, offset) = DataPtr(*address).split(geometry);
            let size_log = geometry.dir_block_log;
            if current.is_none_or(|current| current.file_block != file_block) {
                current = self.blocks.read_one(volume, NAME, size_log, file_block, &mut batch);
            }
            let (Some(at), Some(block)) = (current, batch.blocks.first()) else { continue };
            let entry = DataBlock::verify(batch.bytes_of(block, geometry, size_log), geometry, at)
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
                report_duplicate(volume, Place::ino(directory.ino), right);
            }
        }
        same_hash.clear();
        (self.same_hash, self.index_batch) = (same_hash, batch);
    }

    #[cold]
    fn report(&self, directory: &Directory, damage: Damage) {
        self.volume.error(Place::ino(directory.ino), damage);
    }
}

/// Hash and address of an entry.
pub(super) fn index_entry(entry: &DirEntry<'_>, geometry: &Geometry) -> IndexEntry {
    IndexEntry { hash: hash::entry(entry.name, geometry), address: entry.pointer.0 }
}

/// Verifies a free block and reports damage.
fn verify_free_block<'a>(volume: &Volume<'_>, at: ForkBlock, bytes: &'a [u8]) -> Option<FreeBlock<'a>> {
    let free = FreeBlock::verify(bytes, &volume.geometry, at);
    let free = volume.accept(at.place(), free.and_then(|free| free.audit().map(|()| free)))?;
    volume.check_lsn(at.place(), "directory free block", free.header.lsn.get());
    Some(free)
}

/// Formats a free index for a finding.
fn show_bests(bests: &[u16]) -> String {
    const MAX_SHOWN: usize = 16;
    let shown: Vec<String> = bests.iter().take(MAX_SHOWN).map(u16::to_string).collect();
    let more = if bests.len() > MAX_SHOWN { ", ..." } else { "" };
    format!("{}{more} ({} blocks)", shown.join(", "), bests.len())
}
