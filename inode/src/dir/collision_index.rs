//! An in-memory index of names whose hash many other names share.
//!
//! The hash of the format is simple, and anyone can construct names with equal hashes. Leaf entries distinguish such
//! names only by address: each lookup would read and compare every entry of the hash. A search that meets more than
//! [`SCAN_LIMIT`] entries of one hash therefore indexes all of them by a keyed hash of the whole name; the key is
//! random for each process. The index also answers for names that do not exist. For each entry it stores the block with
//! its leaf entry, which a removal needs.
//!
//! # Invariants
//! - For an indexed hash, the index has exactly the entries that a search of the leaves finds. Every addition or
//!   removal of an entry, and every move of leaf entries to another block, updates the index.
//! - An entry keeps its address in all formats with data blocks; the conversion to shortform drops the index.
//! - A result of the index is always compared with the entry. If it disagrees with the leaves, the index is dropped and
//!   the leaves are searched.
//!
//! # Memory use
//! 25 to 50 bytes for each indexed entry: two hash tables with 9 and 13 bytes per bucket, which are 7/16 to 7/8 full. A
//! process indexes at most two million entries; beyond that, a directory is searched without an index. The index is
//! freed with the inode, which the inode cache evicts when it is full or memory is short.
//!
//! # Locking
//! The index is part of the inode's state, protected by the inode's lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use base::FileBlock;
use format::dir::DataPtr;

/// Entries of one hash that a search of one leaf compares before it builds the index.
pub const SCAN_LIMIT: usize = 32;
/// Scan limit of a search that neither uses nor builds an index.
pub const NO_SCAN_LIMIT: usize = usize::MAX;

/// The most entries indexed in this process; they take 100 MB.
const MOST_ENTRIES: usize = 1 << 21;

/// Entries indexed in this process. Changes only where an index exists.
static ENTRIES: AtomicUsize = AtomicUsize::new(0);

/// The collision index of one directory.
#[derive(Debug, Default)]
pub struct CollisionIndex {
    key: RandomState,
    /// Number of entries of each indexed hash.
    runs: HashMap<u32, u32, RandomState>,
    /// Address of the first entry with each keyed hash.
    first: HashMap<u32, u32, RandomState>,
    /// Entries by address.
    entries: HashMap<u32, IndexSlot, RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct IndexSlot {
    /// The block with its leaf entry. Blocks of the leaf space have 32-bit numbers.
    leaf: u32,
    /// Address of the next entry with the same keyed hash; [`DataPtr::NULL`] at the end.
    next: u32,
}

/// An entry with its keyed hash.
#[derive(Clone, Copy, Debug)]
pub struct CollisionEntry {
    /// Keyed hash of the name.
    pub tag: u32,
    /// Address of the entry.
    pub pointer: DataPtr,
    /// The block with its leaf entry.
    pub leaf: FileBlock,
}

impl CollisionIndex {
    /// Whether the entries of this hash are indexed.
    pub fn has(&self, hash: u32) -> bool {
        self.runs.contains_key(&hash)
    }

    /// Keyed hash of a name; on case-insensitive volumes, of the folded name.
    pub fn tag(&self, hash: u32, name: &[u8]) -> u32 {
        self.key.hash_one((hash, name)) as u32
    }

    /// Whether `more` further entries may be indexed.
    pub fn has_room(more: usize) -> bool {
        ENTRIES.load(Ordering::Relaxed).saturating_add(more) <= MOST_ENTRIES
    }

    /// Indexes all entries of a hash, in the order of the leaves. Returns `false`, with nothing changed, if two leaf
    /// entries have the same address or the limit is reached.
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

    /// Adds an entry of an indexed hash. Returns `false` if it exists or the limit is reached.
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
        // After the first one: of two entries with the same name, a search finds the first.
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

    /// Removes an entry of an indexed hash. Returns `false` if it does not exist.
    pub fn remove(&mut self, hash: u32, tag: u32, pointer: DataPtr) -> bool {
        let Some(IndexSlot { next, .. }) = self.entries.remove(&pointer.0) else { return false };
        ENTRIES.fetch_sub(1, Ordering::Relaxed);
        let is_unlinked = match self.first.get(&tag).copied() {
            Some(first) if first == pointer.0 && next == DataPtr::NULL.0 => self.first.remove(&tag).is_some(),
            Some(first) if first == pointer.0 => self.first.insert(tag, next).is_some(),
            Some(first) => self.unlink_after(first, pointer.0, next),
            None => false,
        };
        let Entry::Occupied(mut count) = self.runs.entry(hash) else { return false };
        *count.get_mut() = count.get().saturating_sub(1);
        if *count.get() == 0 {
            count.remove();
        }
        is_unlinked
    }

    /// Removes an entry from the list that begins at another one.
    fn unlink_after(&mut self, mut at: u32, gone: u32, next: u32) -> bool {
        while let Some(entry) = self.entries.get_mut(&at) {
            if entry.next == gone {
                entry.next = next;
                return true;
            }
            at = entry.next;
        }
        false
    }

    /// Records that a leaf entry has moved to another block. Ignored for a hash that is not indexed.
    pub fn moved(&mut self, hash: u32, pointer: DataPtr, leaf: FileBlock) {
        if self.has(hash)
            && let Some(entry) = self.entries.get_mut(&pointer.0)
            && let Ok(leaf) = u32::try_from(leaf.get())
        {
            entry.leaf = leaf;
        }
    }

    /// The first entry with a keyed hash.
    pub fn first(&self, tag: u32) -> Option<DataPtr> {
        self.first.get(&tag).map(|pointer| DataPtr(*pointer))
    }

    /// The next entry with the same keyed hash.
    pub fn next(&self, pointer: DataPtr) -> Option<DataPtr> {
        let next = self.entries.get(&pointer.0).map(|entry| DataPtr(entry.next));
        next.filter(|next| *next != DataPtr::NULL)
    }

    /// The block with the leaf entry of an entry.
    pub fn leaf(&self, pointer: DataPtr) -> Option<FileBlock> {
        self.entries.get(&pointer.0).map(|entry| FileBlock(entry.leaf.into()))
    }

    /// Number of indexed entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is indexed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Drop for CollisionIndex {
    fn drop(&mut self) {
        ENTRIES.fetch_sub(self.entries.len(), Ordering::Relaxed);
    }
}
