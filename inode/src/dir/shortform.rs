//! Shortform directories: entries in the inode, and the conversion to block format.

use base::{FileBlock, Ino};
use format::dir::data::{self, DATA_MAGIC};
use format::dir::edit::data_block::{self, UnusedRegion};
use format::dir::edit::entry::{self, NewEntry};
use format::dir::edit::{block_format, leaf_entries, shortform};
use format::dir::leaf::LeafEntry;
use format::dir::{DataPtr, entry_size};
use format::edit::BlockMut;
use format::{Damage, Geometry, hash};

use super::Result;
use super::fork::DirFork;
use super::{Directory, FTYPE_DIRECTORY, FoundEntry, NO_SUCH_NAME};
use crate::dabtree::HashTree;

impl<F: DirFork> Directory<'_, F> {
    fn local(&self) -> &[u8] {
        self.fork.local().unwrap_or_default()
    }

    /// Finds a name: the offset of its entry, and the entry.
    pub(super) fn shortform_find(&self, name: &[u8]) -> Result<Option<(usize, FoundEntry)>> {
        let geometry = self.geometry;
        for found in shortform::walk(self.local(), geometry).map_err(|damage| self.damaged(damage))? {
            let found = found.map_err(|damage| self.damaged(damage))?;
            if hash::names_match(found.entry.name, name, geometry) {
                return Ok(Some((found.start, found.entry.into())));
            }
        }
        Ok(None)
    }

    pub(super) fn shortform_counts(&self) -> Result<shortform::ShortformCounts> {
        shortform::ShortformCounts::of(self.local()).map_err(|damage| self.damaged(damage))
    }

    pub(super) fn shortform_parent(&self) -> Result<FoundEntry> {
        let ino = self.shortform_counts()?.parent;
        let offset = data::HEADER_SIZE + entry_size(1, self.geometry);
        let pointer = DataPtr::new(FileBlock(0), offset, self.geometry);
        Ok(FoundEntry { ino, ftype: FTYPE_DIRECTORY, pointer })
    }

    /// Adds a name that the directory does not have.
    pub(super) fn shortform_insert(&mut self, new: NewEntry<'_>) -> Result<()> {
        let mut bytes = self.local().to_vec();
        let capacity = self.fork.local_capacity();
        let added = shortform::add(&mut bytes, self.geometry, capacity, new);
        if added.map_err(|damage| self.damaged(damage))? {
            return self.fork.set_local(&bytes);
        }
        // An entry too large for block format needs leaf format: a block, a leaf and a second data block.
        let size = self.entry_size(new);
        let block = shortform::block_size(self.local(), self.geometry, size);
        let single = block.map_err(|damage| self.damaged(damage))? <= self.geometry.dir_block_size as usize;
        self.fork.ensure_blocks(if single { 1 } else { 3 })?;
        let id = self.shortform_to_block()?;
        self.block_insert(id, new)
    }

    /// Removes the entry at offset `start`.
    pub(super) fn shortform_remove(&mut self, start: usize) -> Result<()> {
        let mut bytes = self.local().to_vec();
        shortform::remove(&mut bytes, self.geometry, start).map_err(|damage| self.damaged(damage))?;
        self.fork.set_local(&bytes)
    }

    /// Sets the inode number and type of a name. Returns `None`, with nothing changed, if a wider inode number does
    /// not fit.
    pub(super) fn shortform_replace(
        &mut self,
        name: &[u8],
        ino: Ino,
        ftype: u8,
    ) -> Result<Option<FoundEntry>> {
        let (start, found) = if name == b".." {
            (None, self.shortform_parent()?)
        } else {
            self.shortform_find(name)?.map(|(start, found)| (Some(start), found)).ok_or(NO_SUCH_NAME)?
        };
        let mut bytes = self.local().to_vec();
        let capacity = self.fork.local_capacity();
        let fits = shortform::retarget(&mut bytes, self.geometry, capacity, start, (ino, ftype));
        if !fits.map_err(|damage| self.damaged(damage))? {
            return Ok(None);
        }
        self.fork.set_local(&bytes)?;
        Ok(Some(found))
    }

    /// Converts to block format. Each entry goes to the offset that its shortform entry has reserved, so that positions
    /// stay valid.
    pub(super) fn shortform_to_block(&mut self) -> Result<F::BlockId> {
        let contents = self.local().to_vec();
        let parent = self.shortform_parent()?.ino;
        let ino = self.fork.ino();
        self.fork.leave_local()?;
        let id = self.fork.allocate(FileBlock(0))?;
        self.fork.set_size(self.geometry.dir_block_size.into());
        let at = self.fork.identity(id);
        self.edit(id, |block, geometry| {
            data_block::init(block, geometry, at, DATA_MAGIC)?;
            let mut builder = BlockBuilder { block, geometry, next: data::HEADER_SIZE, leaf: Vec::new() };
            let dot = data::HEADER_SIZE;
            builder.put(dot, NewEntry { name: b".", ino, ftype: FTYPE_DIRECTORY })?;
            let dot_dot = dot + entry_size(1, geometry);
            builder.put(dot_dot, NewEntry { name: b"..", ino: parent, ftype: FTYPE_DIRECTORY })?;
            for found in shortform::walk(&contents, geometry)? {
                let entry = found?.entry;
                let new = NewEntry { name: entry.name, ino: entry.ino, ftype: entry.ftype };
                builder.put((entry.pointer.0 as usize) << 3, new)?;
            }
            let mut leaf = builder.leaf;
            leaf.sort_by_key(|entry| entry.hashval.get());
            block_format::add_leaf(block, geometry, &leaf)
        })?;
        Ok(id)
    }
}

/// Writes entries into an empty data block, at ascending offsets.
struct BlockBuilder<'f, O> {
    block: &'f mut O,
    geometry: &'f Geometry,
    next: usize,
    leaf: Vec<LeafEntry>,
}

impl<O: BlockMut> BlockBuilder<'_, O> {
    fn put(&mut self, offset: usize, new: NewEntry<'_>) -> std::result::Result<(), Damage> {
        let size = entry_size(new.name.len(), self.geometry);
        let end = self.block.bytes().len();
        let unused = UnusedRegion { offset: self.next, length: end.saturating_sub(self.next) };
        data_block::use_free(self.block, self.geometry, unused, offset, size)?;
        entry::put_entry(self.block, self.geometry, offset, new)?;
        self.next = offset + size;
        let hash = hash::entry(new.name, self.geometry);
        self.leaf.push(leaf_entries::entry(hash, DataPtr::new(FileBlock(0), offset, self.geometry)));
        Ok(())
    }
}
