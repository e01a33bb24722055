//! A directory of one block with its own leaf, and its changes into the forms beside it.

use std::ops::ControlFlow;

use base::{FileBlock, Ino};
use format::Geometry;
use format::dir::data::DATA_MAGIC;
use format::dir::edit::entry::{self, NewEntry};
use format::dir::edit::{block_format, data_block, leaf, leaf_entries, shortform};
use format::dir::leaf::LEAF1_MAGIC;
use format::dir::{DataPtr, DirEntry};
use format::ondisk::U16;

use super::blocks::DirBlocks;
use super::collisions::SCAN_LIMIT;
use super::data::{Hit, Search, Wanted};
use super::error::Result;
use super::{Directory, Found};

impl<B: DirBlocks> Directory<'_, B> {
    pub(super) fn single_search(&mut self, id: B::Id, name: &[u8]) -> Result<Search<B::Id>> {
        let wanted = self.wanted(name);
        let leaf = self.look(id, block_format::BlockLeafShape::of)?;
        self.search(id, leaf.slots, wanted, SCAN_LIMIT)
    }

    pub(super) fn single_find(&mut self, id: B::Id, name: &[u8]) -> Result<Option<Hit<B::Id>>> {
        Ok(self.single_search(id, name)?.hit())
    }

    /// Adds a name that is not there.
    pub(super) fn single_insert(&mut self, id: B::Id, new: NewEntry<'_>) -> Result<()> {
        let (hash, size) = (self.wanted(new.name).hash, self.entry_size(new));
        let added = self.edit(id, |open, geometry| {
            let Some(offset) = block_format::insert(open, geometry, hash, size)? else { return Ok(None) };
            entry::put_entry(open, geometry, offset, new)?;
            Ok(Some(DataPtr::new(FileBlock(0), offset, geometry)))
        })?;
        if let Some(pointer) = added {
            self.index_added(Wanted { name: new.name, hash }, pointer, FileBlock(0));
            return Ok(());
        }
        let need = self.blocks_to_alone(id, size)?;
        self.blocks.ensure_room(need)?;
        let leaf = self.single_to_alone(id)?;
        let shape = self.leaf_shape(leaf)?;
        let slot =
            self.look(leaf, |bytes| Ok(leaf_entries::first_at_least(shape.slots.view(bytes)?, hash)))?;
        self.alone_insert((leaf, shape), (slot, hash), new)
    }

    pub(super) fn single_remove(&mut self, id: B::Id, hit: Hit<B::Id>) -> Result<()> {
        self.edit(id, |open, geometry| {
            block_format::remove(open, hit.slot)?;
            entry::remove(open, geometry, hit.offset)
        })?;
        self.single_to_inside(id)
    }

    /// Moves what is left into the inode, if it fits there.
    pub(super) fn single_to_inside(&mut self, id: B::Id) -> Result<()> {
        let leaf = self.look(id, block_format::BlockLeafShape::of)?;
        let live = leaf.slots.count.saturating_sub(leaf.stale + 2);
        let capacity = self.blocks.local_capacity();
        // The shortest entry has a name of one byte: a bound that costs nothing.
        let only = self.blocks.next_mapped(FileBlock(self.per_block()))?.is_none();
        if 6 + live * 8 > capacity || !only || !self.blocks.can_free(FileBlock(0))? {
            return Ok(());
        }
        let mut kept = Kept::default();
        let _ = self.visit_block(FileBlock(0), id, DataPtr(0), &mut |entry| {
            kept.count(&entry);
            if kept.fits(self.geometry, capacity) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let Some(parent) = kept.parent.filter(|_| kept.fits(self.geometry, capacity)) else { return Ok(()) };
        let mut entries: Vec<(Found, Box<[u8]>)> = Vec::with_capacity(live);
        let _ = self.visit_block(FileBlock(0), id, DataPtr(0), &mut |entry| {
            if !entry.is_dot() && !entry.is_dot_dot() {
                entries.push((entry.into(), entry.name.into()));
            }
            ControlFlow::Continue(())
        })?;
        let named = entries.iter().map(|(found, name)| {
            let Found { ino, ftype, pointer } = *found;
            DirEntry { name, ino, ftype, pointer }
        });
        if let Some(bytes) = shortform::build(self.geometry, parent, named, capacity) {
            self.blocks.free(FileBlock(0), id)?;
            self.blocks.set_local(&bytes)?;
            self.forget_index();
        }
        Ok(())
    }

    /// Blocks that the change to a leaf of its own takes, when an entry of `size` bytes then goes in.
    fn blocks_to_alone(&self, id: B::Id, size: usize) -> Result<u32> {
        self.look(id, |bytes| {
            let start = block_format::BlockLeafShape::of(bytes)?.slots.start;
            let last = data_block::unused_before(bytes, start)?.map_or(0, |last| last.length);
            let [largest, ..] = data_block::best_free(bytes)?;
            let fits = largest.length >= size || last + (bytes.len() - start) >= size;
            Ok(if fits { 1 } else { 2 })
        })
    }

    /// Moves the leaf into a block of its own.
    fn single_to_alone(&mut self, data: B::Id) -> Result<B::Id> {
        let id = self.blocks.fresh(self.root())?;
        let at = self.blocks.identity(id);
        let entries =
            self.edit(data, |open, geometry| block_format::remove_leaf(open, geometry, DATA_MAGIC))?;
        let best = self.largest(data)?;
        self.edit(id, |open, geometry| {
            leaf::init(open, geometry, at, LEAF1_MAGIC)?;
            leaf::put_bests(open, &[U16::new(best)])?;
            leaf::put_entries(open, &entries)
        })?;
        self.index_moved(&entries, self.root());
        Ok(id)
    }
}

/// What the entries of a block would take in the inode.
#[derive(Default)]
struct Kept {
    entries: usize,
    names: usize,
    wide: bool,
    parent: Option<Ino>,
}

impl Kept {
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
