//! An index in memory of the names that share their hash with many others.
//!
//! The hash of the format is four operations long, and anybody can make names that all have the same. Leaf entries tell
//! them apart by nothing else: each lookup would compare the name with every entry of the hash, and read that entry's
//! data block for it. Where a search meets more than [`SCAN_LIMIT`] entries of one hash, all entries of that hash are
//! indexed by a keyed hash of the whole name, with a key of this process. The index answers for names that are not
//! there, too. For each entry it also knows the leaf with the entry's leaf entry, which a removal needs.
//!
//! # Invariants
//! - Of a hash that is indexed, the index has exactly the entries that a search through the leaves finds. Whatever adds
//!   or removes an entry, or moves leaf entries to another block, tells the index.
//! - TreeEntries stay where they are in the data blocks, whatever form the directory takes, until it goes into its
//!   inode.
//! - What the index says of a name is compared with the entry. Where it does not agree with the leaves, it is dropped,
//!   and the leaves are searched.
//!
//! # MemoryFork
//! 25 to 50 bytes for each indexed entry: two hash tables with 9 and 13 bytes a place, which are between seven eighths
//! and seven sixteenths full. At most two million entries are indexed in a process; a directory that would need
//! more is searched without an index. The index is dropped with the inode, which the inode table drops when it is full
//! or memory is short.
//!
//! # Locking
//! A part of the inode's state, and guarded by the inode's lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use base::FileBlock;
use format::dir::DataPtr;

/// How many entries of one hash in one leaf a search compares before the hash is indexed.
pub const SCAN_LIMIT: usize = 32;
/// For a search that neither uses nor builds an index.
pub const NO_SCAN_LIMIT: usize = usize::MAX;

/// Most entries that are indexed in this process: 100 MB.
const MOST_ENTRIES: usize = 1 << 21;

/// TreeEntries that are indexed in this process. Changed only where an index exists.
static ENTRIES: AtomicUsize = AtomicUsize::new(0);

/// See the module.
#[derive(Debug, Default)]
pub struct CollisionIndex {
    key: RandomState,
    /// How many entries each indexed hash has.
    runs: HashMap<u32, u32, RandomState>,
    /// The address of the first entry with a keyed hash.
    first: HashMap<u32, u32, RandomState>,
    /// TreeEntries by address.
    entries: HashMap<u32, IndexSlot, RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct IndexSlot {
    /// The block with its leaf entry: blocks of the leaf space have numbers of 32 bits.
    leaf: u32,
    /// The address of the next entry with the same keyed hash; that of none where there is none.
    next: u32,
}

/// One entry, as a walk through the leaves finds it.
#[derive(Clone, Copy, Debug)]
pub struct CollisionEntry {
    /// The keyed hash of its name.
    pub tag: u32,
    /// Its address.
    pub pointer: DataPtr,
    /// The block with its leaf entry.
    pub leaf: FileBlock,
}

impl CollisionIndex {
    /// Whether names of this hash are indexed.
    pub fn has(&self, hash: u32) -> bool {
        self.runs.contains_key(&hash)
    }

    /// The keyed hash of a name, whose case was folded where the volume ignores it.
    pub fn tag(&self, hash: u32, name: &[u8]) -> u32 {
        self.key.hash_one((hash, name)) as u32
    }

    /// Whether so many more entries may be indexed.
    pub fn has_room(more: usize) -> bool {
        ENTRIES.load(Ordering::Relaxed).saturating_add(more) <= MOST_ENTRIES
    }

    /// Indexes all entries of a hash, in the order of the leaves. `false`, with nothing changed, where two leaf entries
    /// have one address, or there are too many.
    pub fn add_hash(&mut self, hash: u32, entries: &[CollisionEntry]) -> bool {
        let mut pointers: Vec<DataPtr> = entries.iter().map(|entry| entry.pointer).collect();
        pointers.sort_unstable();
        let known = |pointer: &DataPtr| self.entries.contains_key(&pointer.0);
        let twice = pointers.windows(2).any(|pair| matches!(pair, [one, other] if one == other));
        if twice || pointers.iter().any(known) || !Self::has_room(entries.len()) {
            return false;
        }
        self.runs.insert(hash, 0);
        entries.iter().all(|entry| self.add(hash, *entry))
    }

    /// Adds an entry of an indexed hash. `false` where it is there already, or there are too many.
    pub fn add(&mut self, hash: u32, CollisionEntry { tag, pointer, leaf }: CollisionEntry) -> bool {
        let (Some(count), Ok(leaf)) = (self.runs.get_mut(&hash), u32::try_from(leaf.get())) else {
            return false;
        };
        let Entry::Vacant(place) = self.entries.entry(pointer.0) else { return false };
        if !Self::has_room(1) {
            return false;
        }
        ENTRIES.fetch_add(1, Ordering::Relaxed);
        *count += 1;
        place.insert(IndexSlot { leaf, next: DataPtr::NULL.0 });
        // Behind the first, which stays the one that a search finds where two entries have the same name.
        let first = *self.first.entry(tag).or_insert(pointer.0);
        if first != pointer.0
            && let Some(first) = self.entries.get_mut(&first)
        {
            let next = std::mem::replace(&mut first.next, pointer.0);
            if let Some(new) = self.entries.get_mut(&pointer.0) {
                new.next = next;
            }
        }
        true
    }

    /// Removes an entry of an indexed hash. `false` where it is not there.
    pub fn remove(&mut self, hash: u32, tag: u32, pointer: DataPtr) -> bool {
        let Some(IndexSlot { next, .. }) = self.entries.remove(&pointer.0) else { return false };
        ENTRIES.fetch_sub(1, Ordering::Relaxed);
        let is_unlinked = match self.first.get(&tag).copied() {
            Some(first) if first == pointer.0 && next == DataPtr::NULL.0 => self.first.remove(&tag).is_some(),
            Some(first) if first == pointer.0 => self.first.insert(tag, next).is_some(),
            Some(first) => self.unlink_behind(first, pointer.0, next),
            None => false,
        };
        let Entry::Occupied(mut count) = self.runs.entry(hash) else { return false };
        *count.get_mut() = count.get().saturating_sub(1);
        if *count.get() == 0 {
            count.remove();
        }
        is_unlinked
    }

    /// Takes an entry out of the list that begins with another.
    fn unlink_behind(&mut self, mut at: u32, gone: u32, next: u32) -> bool {
        while let Some(entry) = self.entries.get_mut(&at) {
            if entry.next == gone {
                entry.next = next;
                return true;
            }
            at = entry.next;
        }
        false
    }

    /// Notes that an entry's leaf entry is in another block now; nothing happens where the hash is not indexed.
    pub fn moved(&mut self, hash: u32, pointer: DataPtr, leaf: FileBlock) {
        if self.has(hash)
            && let Some(entry) = self.entries.get_mut(&pointer.0)
            && let Ok(leaf) = u32::try_from(leaf.get())
        {
            entry.leaf = leaf;
        }
    }

    /// The first entry whose name may be the one with this keyed hash.
    pub fn first(&self, tag: u32) -> Option<DataPtr> {
        self.first.get(&tag).map(|pointer| DataPtr(*pointer))
    }

    /// The next such entry.
    pub fn next(&self, pointer: DataPtr) -> Option<DataPtr> {
        let next = self.entries.get(&pointer.0).map(|entry| DataPtr(entry.next));
        next.filter(|next| *next != DataPtr::NULL)
    }

    /// The block with an entry's leaf entry.
    pub fn leaf(&self, pointer: DataPtr) -> Option<FileBlock> {
        self.entries.get(&pointer.0).map(|entry| FileBlock(entry.leaf.into()))
    }

    /// How many entries are indexed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Drop for CollisionIndex {
    fn drop(&mut self) {
        ENTRIES.fetch_sub(self.entries.len(), Ordering::Relaxed);
    }
}
