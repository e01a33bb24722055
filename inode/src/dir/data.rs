//! What the formats with data blocks share: the search of leaf entries, and the entries and data blocks themselves.

use std::ops::ControlFlow;

use base::{FileBlock, Ino};
use format::dir::data::DATA_MAGIC;
use format::dir::edit::data_block;
use format::dir::edit::entry::{self, NewEntry};
use format::dir::edit::leaf_entries::{self, LeafEntryRange};
use format::dir::{DataPtr, DirSpace, entry_size};
use format::hash;

use super::collision_index::NO_SCAN_LIMIT;
use super::fork::{DirBlockType, DirFork};
use super::readdir::visit_block;
use super::{Directory, FoundEntry};
use super::{Error, Result};
use crate::dabtree::{HashTree, TreeReader};

/// An entry that was found through its leaf entry.
#[derive(Clone, Copy)]
pub(super) struct LeafHit<Id> {
    pub found: FoundEntry,
    /// The data block.
    pub data: Id,
    /// The number of the data block in the data space.
    pub data_index: usize,
    /// Byte offset in the data block.
    pub offset: usize,
    /// Index of its leaf entry in the leaf that was searched.
    pub slot: usize,
}

/// An entry whose leaf entry is not known.
pub(super) struct DataEntry<Id> {
    pub found: FoundEntry,
    /// The data block.
    pub data: Id,
    pub data_index: usize,
    pub offset: usize,
}

impl<Id> DataEntry<Id> {
    /// Adds the index of the leaf entry.
    pub fn with_slot(self, slot: usize) -> LeafHit<Id> {
        let Self { found, data, data_index, offset } = self;
        LeafHit { found, data, data_index, offset, slot }
    }
}

/// The result of searching one leaf for a name.
pub(super) enum LeafSearch<Id> {
    Found(LeafHit<Id>),
    /// The name exists; its leaf entry is in another leaf of the hash tree.
    InOtherLeaf(DataEntry<Id>, FileBlock),
    /// The name does not exist; its leaf entry would go here, before all others of its hash.
    Absent(usize),
    /// The name is not in this leaf. Entries of the hash may continue in the next leaf, as this one ends with the hash
    /// or a lower one. The slot is that of [`Absent`](Self::Absent).
    MayContinue(usize),
}

impl<Id> LeafSearch<Id> {
    /// The entry, if this leaf has it.
    pub fn hit(self) -> Option<LeafHit<Id>> {
        match self {
            Self::Found(hit) => Some(hit),
            Self::InOtherLeaf(..) | Self::Absent(_) | Self::MayContinue(_) => None,
        }
    }
}

/// A name and its hash.
#[derive(Clone, Copy)]
pub(super) struct HashedName<'n> {
    pub name: &'n [u8],
    pub hash: u32,
}

impl<F: DirFork> Directory<'_, F> {
    pub(super) fn hashed<'n>(&self, name: &'n [u8]) -> HashedName<'n> {
        HashedName { name, hash: hash::entry(name, self.geometry) }
    }

    pub(super) fn entry_size(&self, new: NewEntry<'_>) -> usize {
        entry_size(new.name.len(), self.geometry)
    }

    /// Searches the leaf entries of one block for a name. A search that would compare more than `scan_limit` names of
    /// one hash builds the collision index, and asks that.
    pub(super) fn search_leaf(
        &mut self,
        leaf: F::BlockId,
        slots: LeafEntryRange,
        wanted: HashedName<'_>,
        scan_limit: usize,
    ) -> Result<LeafSearch<F::BlockId>> {
        let first =
            self.view(leaf, |bytes| Ok(leaf_entries::first_at_least(slots.view(bytes)?, wanted.hash)))?;
        if self.fork.collision_index().is_some()
            && scan_limit != NO_SCAN_LIMIT
            && let Some(search) = self.search_index(leaf, slots, first, wanted)?
        {
            return Ok(search);
        }
        let (mut last_read, mut compared) = (None, 0);
        for slot in first..slots.count {
            let entry = self.view(leaf, |bytes| Ok(slots.view(bytes)?.get(slot).copied()))?;
            let Some(entry) = entry.filter(|entry| entry.hashval.get() == wanted.hash) else {
                return Ok(LeafSearch::Absent(first));
            };
            let pointer = entry.pointer();
            if pointer == DataPtr::NULL {
                continue;
            }
            if compared == scan_limit {
                return self.index_and_search(leaf, slots, first, wanted);
            }
            compared += 1;
            let (block, offset) = pointer.split(self.geometry);
            let data = self.read_next_data(&mut last_read, block, leaf)?;
            if let Some(found) = self.compare(data, block, offset, wanted)? {
                let data_index = self.data_index(block);
                return Ok(LeafSearch::Found(LeafHit { found, data, data_index, offset, slot }));
            }
        }
        Ok(LeafSearch::MayContinue(first))
    }

    /// Reads the data block of the next leaf entry, unless it is the one of `last_read`; releases the block read
    /// before, unless it is `kept`.
    #[inline]
    pub(super) fn read_next_data(
        &mut self,
        last_read: &mut Option<(FileBlock, F::BlockId)>,
        block: FileBlock,
        kept: F::BlockId,
    ) -> Result<F::BlockId> {
        if let Some((_, id)) = last_read.filter(|(at, _)| *at == block) {
            return Ok(id);
        }
        if let Some((_, id)) = last_read.take().filter(|(_, id)| *id != kept) {
            self.fork.release(id);
        }
        let id = self.read_data_block(block)?;
        *last_read = Some((block, id));
        Ok(id)
    }

    /// Compares a name with the entry at an offset of a data block; returns the entry if they match.
    #[inline]
    pub(super) fn compare(
        &self,
        data: F::BlockId,
        block: FileBlock,
        offset: usize,
        wanted: HashedName<'_>,
    ) -> Result<Option<FoundEntry>> {
        let geometry = self.geometry;
        self.view(data, |bytes| {
            let entry = entry::at(bytes, geometry, block, offset)?;
            Ok(hash::names_match(entry.name, wanted.name, geometry).then(|| FoundEntry::from(entry)))
        })
    }

    /// Reads a data block.
    pub(super) fn read_data_block(&mut self, block: FileBlock) -> Result<F::BlockId> {
        if block >= DirSpace::Leaf.first_block(self.geometry) {
            let ino = self.fork.ino();
            let damage =
                format::Damage::new("directory leaf entry", "address", "a byte of the data space", block);
            return Err(Error::damaged(format::Place::ino(ino), damage));
        }
        self.fork.read(block, DirBlockType::Data)
    }

    /// Allocates and formats a data block; extends the directory's size to its end.
    pub(super) fn new_data_block(&mut self, index: usize) -> Result<F::BlockId> {
        let block = self.data_block(index);
        if block >= DirSpace::Leaf.first_block(self.geometry) {
            return Err(Error::NoSpace { what: "a directory beyond 32 GiB" });
        }
        let id = self.fork.allocate(block)?;
        let at = self.fork.identity(id);
        self.edit(id, |block, geometry| data_block::init(block, geometry, at, DATA_MAGIC))?;
        let end = (block.get() + self.per_block()) << self.geometry.block_log;
        if end > self.fork.size() {
            self.fork.set_size(end);
        }
        Ok(id)
    }

    /// Writes an entry into the largest unused region of a block; the caller has checked the best. Returns the entry's
    /// position and the new best.
    pub(super) fn put_entry(
        &mut self,
        data: F::BlockId,
        index: usize,
        new: NewEntry<'_>,
    ) -> Result<(DataPtr, u16)> {
        let size = self.entry_size(new);
        let (offset, best) = self.edit(data, |block, geometry| {
            let (offset, best) = data_block::use_largest_free(block, geometry, size)?;
            entry::put_entry(block, geometry, offset, new)?;
            Ok((offset, best))
        })?;
        Ok((DataPtr::new(self.data_block(index), offset, self.geometry), best))
    }

    /// The best of a data block: the length of its largest unused region.
    pub(super) fn largest(&self, data: F::BlockId) -> Result<u16> {
        let [largest, ..] = self.view(data, data_block::best_free)?;
        // Fits: a block has at most 64 KiB, including its header.
        Ok(largest.length as u16)
    }

    /// Removes an entry. Returns the data block's new best; `None` if the block became empty and was freed.
    pub(super) fn remove_entry(&mut self, hit: &LeafHit<F::BlockId>) -> Result<Option<u16>> {
        self.edit(hit.data, |block, geometry| entry::remove(block, geometry, hit.offset))?;
        let largest = self.largest(hit.data)?;
        let block = self.data_block(hit.data_index);
        let empty = usize::from(largest) == data_block::max_free(self.geometry);
        if hit.data_index == 0 || !empty || !self.fork.can_free(block, 0)? {
            return Ok(Some(largest));
        }
        self.free_data_block(block, hit.data)?;
        Ok(None)
    }

    /// Frees a data block; reduces the directory's size to the end of the last one left.
    pub(super) fn free_data_block(&mut self, block: FileBlock, id: F::BlockId) -> Result<()> {
        self.fork.free(block, id)?;
        let end = self.fork.mapped_end(DirSpace::Leaf.first_block(self.geometry))?;
        let size = end.get() << self.geometry.block_log;
        if size < self.fork.size() {
            self.fork.set_size(size);
        }
        Ok(())
    }

    /// Sets the inode number and file type of an entry.
    pub(super) fn retarget(&mut self, hit: LeafHit<F::BlockId>, ino: Ino, ftype: u8) -> Result<()> {
        self.edit(hit.data, |block, geometry| entry::retarget(block, geometry, hit.offset, ino, ftype))
    }

    /// Calls `visit` for the entries of one data block at positions from `from` on.
    pub(super) fn visit_block(
        &self,
        block: FileBlock,
        id: F::BlockId,
        from: DataPtr,
        visit: &mut impl FnMut(format::dir::DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let geometry = self.geometry;
        self.view(id, |bytes| visit_block(bytes, geometry, block, from, visit))
    }
}
