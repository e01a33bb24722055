//! What all forms with data blocks share: finding an entry by its leaf entry, adding and removing it there, and data
//! blocks that come and go.

use std::ops::ControlFlow;

use base::{FileBlock, Ino};
use format::dir::data::DATA_MAGIC;
use format::dir::edit::data_block;
use format::dir::edit::entry::{self, NewEntry};
use format::dir::edit::leaf_entries::{self, LeafEntryRange};
use format::dir::{DataPtr, DirSpace, entry_size};
use format::hash;

use super::blocks::{DirBlocks, Kind};
use super::collisions::NO_SCAN_LIMIT;
use super::error::{Error, Result};
use super::{Directory, Found};

/// An entry that was found by its name.
#[derive(Clone, Copy)]
pub(super) struct Hit<Id> {
    pub found: Found,
    /// Its data block.
    pub data: Id,
    /// The data block's number in the data space.
    pub index: usize,
    /// Where it lies there.
    pub offset: usize,
    /// Its leaf entry, in the leaf that was searched.
    pub slot: usize,
}

/// An entry that was found by its name, without its leaf entry.
pub(super) struct Spot<Id> {
    pub found: Found,
    /// As of a [`Hit`].
    pub data: Id,
    pub index: usize,
    pub offset: usize,
}

impl<Id> Spot<Id> {
    /// With the slot of its leaf entry, in the leaf that was searched.
    pub fn with_slot(self, slot: usize) -> Hit<Id> {
        let Self { found, data, index, offset } = self;
        Hit { found, data, index, offset, slot }
    }
}

/// What a search in one leaf came to.
pub(super) enum Search<Id> {
    Hit(Hit<Id>),
    /// There is such an entry, and its leaf entry is in another leaf of the tree.
    Elsewhere(Spot<Id>, FileBlock),
    /// There is none. It would go here, in front of all with its hash.
    Miss(usize),
    /// The same, and the last entry of this leaf has the hash or a lower one: the next leaf may have it.
    Beyond(usize),
}

impl<Id> Search<Id> {
    /// The entry, if the leaf has it.
    pub fn hit(self) -> Option<Hit<Id>> {
        match self {
            Self::Hit(hit) => Some(hit),
            Self::Elsewhere(..) | Self::Miss(_) | Self::Beyond(_) => None,
        }
    }
}

/// A name and its hash.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'n> {
    pub name: &'n [u8],
    pub hash: u32,
}

impl<B: DirBlocks> Directory<'_, B> {
    pub(super) fn wanted<'n>(&self, name: &'n [u8]) -> Wanted<'n> {
        Wanted { name, hash: hash::entry(name, self.geometry) }
    }

    /// Bytes of an entry of that name.
    pub(super) fn entry_size(&self, new: NewEntry<'_>) -> usize {
        entry_size(new.name.len(), self.geometry)
    }

    /// Searches among the leaf entries of one block. Where that takes comparing more than `scan_limit` names, they are
    /// indexed, and the index answers.
    pub(super) fn search(
        &mut self,
        leaf: B::Id,
        slots: LeafEntryRange,
        wanted: Wanted<'_>,
        scan_limit: usize,
    ) -> Result<Search<B::Id>> {
        let first =
            self.look(leaf, |bytes| Ok(leaf_entries::first_at_least(slots.view(bytes)?, wanted.hash)))?;
        if self.blocks.collisions().is_some()
            && scan_limit != NO_SCAN_LIMIT
            && let Some(search) = self.search_index(leaf, (slots, first), wanted)?
        {
            return Ok(search);
        }
        let (mut open, mut compared) = (None, 0);
        for slot in first..slots.count {
            let entry = self.look(leaf, |bytes| Ok(slots.view(bytes)?.get(slot).copied()))?;
            let Some(entry) = entry.filter(|entry| entry.hashval.get() == wanted.hash) else {
                return Ok(Search::Miss(first));
            };
            let pointer = entry.pointer();
            if pointer == DataPtr::NULL {
                continue;
            }
            if compared == scan_limit {
                return self.index_and_search(leaf, (slots, first), wanted);
            }
            compared += 1;
            let (block, offset) = pointer.split(self.geometry);
            let data = self.open_data(&mut open, block, leaf)?;
            if let Some(found) = self.compare(data, (block, offset), wanted)? {
                let index = self.data_index(block);
                return Ok(Search::Hit(Hit { found, data, index, offset, slot }));
            }
        }
        Ok(Search::Beyond(first))
    }

    /// The data block of the next entry on a walk, which lets the one before go, unless it is `kept`.
    #[inline]
    pub(super) fn open_data(
        &mut self,
        open: &mut Option<(FileBlock, B::Id)>,
        block: FileBlock,
        kept: B::Id,
    ) -> Result<B::Id> {
        if let Some((_, id)) = open.filter(|(at, _)| *at == block) {
            return Ok(id);
        }
        if let Some((_, id)) = open.take().filter(|(_, id)| *id != kept) {
            self.blocks.release(id);
        }
        let id = self.read_data(block)?;
        *open = Some((block, id));
        Ok(id)
    }

    /// What the entry at a place of a data block says, if it has the name.
    #[inline]
    pub(super) fn compare(
        &self,
        data: B::Id,
        (block, offset): (FileBlock, usize),
        wanted: Wanted<'_>,
    ) -> Result<Option<Found>> {
        let geometry = self.geometry;
        self.look(data, |bytes| {
            let entry = entry::at(bytes, geometry, block, offset)?;
            Ok(hash::names_match(entry.name, wanted.name, geometry).then(|| Found::from(entry)))
        })
    }

    /// Brings a block of entries in.
    pub(super) fn read_data(&mut self, block: FileBlock) -> Result<B::Id> {
        if block >= DirSpace::Leaf.first_block(self.geometry) {
            let ino = self.blocks.ino();
            let damage =
                format::Damage::new("directory leaf entry", "address", "a byte of the data space", block);
            return Err(Error::damaged(format::Place::ino(ino), damage));
        }
        self.blocks.read(block, Kind::Data)
    }

    /// Makes a new block of entries, and lets the directory's size reach behind it.
    pub(super) fn fresh_data(&mut self, index: usize) -> Result<B::Id> {
        let block = self.data_block(index);
        if block >= DirSpace::Leaf.first_block(self.geometry) {
            return Err(Error::NoSpace { what: "a directory beyond 32 GiB" });
        }
        let id = self.blocks.fresh(block)?;
        let at = self.blocks.identity(id);
        self.edit(id, |open, geometry| data_block::init(open, geometry, at, DATA_MAGIC))?;
        let end = (block.get() + self.per_block()) << self.geometry.block_log;
        if end > self.blocks.size() {
            self.blocks.set_size(end);
        }
        Ok(id)
    }

    /// Writes an entry into the largest room of a block, which the tables say is large enough. Returns its address, and
    /// the largest room that is left.
    pub(super) fn put_entry(
        &mut self,
        data: B::Id,
        index: usize,
        new: NewEntry<'_>,
    ) -> Result<(DataPtr, u16)> {
        let size = self.entry_size(new);
        let (offset, left) = self.edit(data, |open, geometry| {
            let (offset, left) = data_block::use_largest_free(open, geometry, size)?;
            entry::put_entry(open, geometry, offset, new)?;
            Ok((offset, left))
        })?;
        Ok((DataPtr::new(self.data_block(index), offset, self.geometry), left))
    }

    /// Bytes of the largest room in a block.
    pub(super) fn largest(&self, data: B::Id) -> Result<u16> {
        let [largest, ..] = self.look(data, data_block::best_free)?;
        // A block has at most 64 KiB, of which its header takes some.
        Ok(largest.length as u16)
    }

    /// Removes an entry from its block. Returns the largest room that is there now; `None` where the block was the
    /// last entry's, and has been freed.
    pub(super) fn take_entry(&mut self, hit: &Hit<B::Id>) -> Result<Option<u16>> {
        self.edit(hit.data, |open, geometry| entry::remove(open, geometry, hit.offset))?;
        let largest = self.largest(hit.data)?;
        let block = self.data_block(hit.index);
        let empty = usize::from(largest) == data_block::max_free(self.geometry);
        if hit.index == 0 || !empty || !self.blocks.can_free(block)? {
            return Ok(Some(largest));
        }
        self.drop_data(block, hit.data)?;
        Ok(None)
    }

    /// Frees a block of entries, and lets the directory's size end with the last that is left.
    pub(super) fn drop_data(&mut self, block: FileBlock, id: B::Id) -> Result<()> {
        self.blocks.free(block, id)?;
        let end = self.blocks.mapped_end(DirSpace::Leaf.first_block(self.geometry))?;
        let size = end.get() << self.geometry.block_log;
        if size < self.blocks.size() {
            self.blocks.set_size(size);
        }
        Ok(())
    }

    /// Gives an entry another inode and type.
    pub(super) fn retarget(&mut self, hit: Hit<B::Id>, ino: Ino, ftype: u8) -> Result<()> {
        self.edit(hit.data, |open, geometry| entry::retarget(open, geometry, hit.offset, ino, ftype))
    }

    /// Visits the entries of one data block from a position on.
    pub(super) fn visit_block(
        &self,
        block: FileBlock,
        id: B::Id,
        from: DataPtr,
        visit: &mut impl FnMut(format::dir::DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let geometry = self.geometry;
        self.look(id, |bytes| {
            let mut offset = 0;
            while let Some((at, entry)) = entry::next(bytes, geometry, block, offset)? {
                if entry.pointer >= from && visit(entry).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                offset = at + entry_size(entry.name.len(), geometry);
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}
