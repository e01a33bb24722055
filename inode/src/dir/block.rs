//! Directories in block format: one block with entries and their leaf entries; and the conversions to leaf format and
//! shortform.

use std::ops::ControlFlow;

use base::{FileBlock, Ino};
use format::Geometry;
use format::dir::data::DATA_MAGIC;
use format::dir::edit::entry::{self, NewEntry};
use format::dir::edit::{block_format, data_block, leaf, leaf_entries, shortform};
use format::dir::leaf::LEAF1_MAGIC;
use format::dir::{DataPtr, DirEntry};
use format::ondisk::U16;

use super::Result;
use super::collision_index::SCAN_LIMIT;
use super::data::{HashedName, LeafHit, LeafSearch};
use super::fork::DirFork;
use super::insert_slot::LeafInsertSlot;
use super::{Directory, FoundEntry};
use crate::dabtree::{HashTree, TreeReader};

impl<F: DirFork> Directory<'_, F> {
    pub(super) fn block_search(&mut self, id: F::BlockId, name: &[u8]) -> Result<LeafSearch<F::BlockId>> {
        let wanted = self.hashed(name);
        let leaf = self.view(id, block_format::BlockLeafShape::of)?;
        self.search_leaf(id, leaf.slots, wanted, SCAN_LIMIT)
    }

    pub(super) fn block_find(&mut self, id: F::BlockId, name: &[u8]) -> Result<Option<LeafHit<F::BlockId>>> {
        Ok(self.block_search(id, name)?.hit())
    }

    /// Adds a name that the directory does not have.
    pub(super) fn block_insert(&mut self, id: F::BlockId, new: NewEntry<'_>) -> Result<()> {
        let (hash, size) = (self.hashed(new.name).hash, self.entry_size(new));
        let added = self.edit(id, |block, geometry| {
            let Some(offset) = block_format::insert(block, geometry, hash, size)? else { return Ok(None) };
            entry::put_entry(block, geometry, offset, new)?;
            Ok(Some(DataPtr::new(FileBlock(0), offset, geometry)))
        })?;
        if let Some(pointer) = added {
            self.index_added(HashedName { name: new.name, hash }, pointer, FileBlock(0));
            return Ok(());
        }
        let need = self.blocks_for_leaf(id, size)?;
        self.fork.ensure_blocks(need)?;
        let leaf = self.block_to_leaf(id)?;
        let shape = self.leaf_shape(leaf)?;
        let slot =
            self.view(leaf, |bytes| Ok(leaf_entries::first_at_least(shape.slots.view(bytes)?, hash)))?;
        self.leaf_insert(leaf, LeafInsertSlot { hash, slot, shape }, new)
    }

    pub(super) fn block_remove(&mut self, id: F::BlockId, hit: LeafHit<F::BlockId>) -> Result<()> {
        self.edit(id, |block, geometry| {
            block_format::remove(block, hit.slot)?;
            entry::remove(block, geometry, hit.offset)
        })?;
        self.block_to_shortform(id)
    }

    /// Converts to shortform if all entries fit the inode.
    pub(super) fn block_to_shortform(&mut self, id: F::BlockId) -> Result<()> {
        let leaf = self.view(id, block_format::BlockLeafShape::of)?;
        let live = leaf.slots.count.saturating_sub(leaf.stale + 2);
        let capacity = self.fork.local_capacity();
        // A cheap lower bound first: a shortform entry takes at least 8 bytes.
        let only = self.fork.next_mapped(FileBlock(self.per_block()))?.is_none();
        if 6 + live * 8 > capacity || !only || !self.fork.can_free(FileBlock(0), 0)? {
            return Ok(());
        }
        let mut kept = ShortformSize::default();
        let _ = self.visit_block(FileBlock(0), id, DataPtr(0), &mut |entry| {
            kept.count(&entry);
            if kept.fits(self.geometry, capacity) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let Some(parent) = kept.parent.filter(|_| kept.fits(self.geometry, capacity)) else { return Ok(()) };
        let mut entries: Vec<(FoundEntry, Box<[u8]>)> = Vec::with_capacity(live);
        let _ = self.visit_block(FileBlock(0), id, DataPtr(0), &mut |entry| {
            if !entry.is_dot() && !entry.is_dot_dot() {
                entries.push((entry.into(), entry.name.into()));
            }
            ControlFlow::Continue(())
        })?;
        let named = entries.iter().map(|(found, name)| {
            let FoundEntry { ino, ftype, pointer } = *found;
            DirEntry { name, ino, ftype, pointer }
        });
        if let Some(bytes) = shortform::build(self.geometry, parent, named, capacity) {
            self.fork.free(FileBlock(0), id)?;
            self.fork.set_local(&bytes)?;
            self.forget_index();
        }
        Ok(())
    }

    /// Directory blocks that the conversion to leaf format allocates, including a second data block if an entry of
    /// `size` bytes does not fit the first.
    fn blocks_for_leaf(&self, id: F::BlockId, size: usize) -> Result<u32> {
        self.view(id, |bytes| {
            let start = block_format::BlockLeafShape::of(bytes)?.slots.start;
            let last = data_block::unused_before(bytes, start)?.map_or(0, |last| last.length);
            let [largest, ..] = data_block::best_free(bytes)?;
            let fits = largest.length >= size || last + (bytes.len() - start) >= size;
            Ok(if fits { 1 } else { 2 })
        })
    }

    /// Converts to leaf format: the leaf entries move to a leaf block.
    fn block_to_leaf(&mut self, data: F::BlockId) -> Result<F::BlockId> {
        let id = self.fork.allocate(self.root())?;
        let at = self.fork.identity(id);
        let entries =
            self.edit(data, |block, geometry| block_format::remove_leaf(block, geometry, DATA_MAGIC))?;
        let best = self.largest(data)?;
        self.edit(id, |block, geometry| {
            leaf::init(block, geometry, at, LEAF1_MAGIC)?;
            leaf::put_bests(block, &[U16::new(best)])?;
            leaf::put_entries(block, &entries)
        })?;
        self.index_moved(&entries, self.root());
        Ok(id)
    }
}

/// The size of a block's entries in shortform.
#[derive(Default)]
struct ShortformSize {
    entries: usize,
    names: usize,
    wide: bool,
    parent: Option<Ino>,
}

impl ShortformSize {
    fn count(&mut self, entry: &DirEntry<'_>) {
        self.wide |= entry.ino.get() > u64::from(u32::MAX) && !entry.is_dot();
        if entry.is_dot_dot() {
            self.parent = Some(entry.ino);
        } else if !entry.is_dot() {
            self.entries += 1;
            self.names += entry.name.len();
        }
    }

    fn fits(&self, geometry: &Geometry, capacity: usize) -> bool {
        shortform::size(geometry, self.entries, self.names, self.wide) <= capacity
    }
}
