//! Use of the collision index by a directory: lookup, construction, updates.

use base::FileBlock;
use format::dabtree;
use format::dir::DataPtr;
use format::dir::edit::leaf_entries::LeafEntryRange;
use format::dir::edit::{block_format, entry, leaf_entries};
use format::dir::leaf::{LEAFN_MAGIC, LeafEntry};
use format::hash;

use super::Result;
use super::collision_index::{CollisionEntry, CollisionIndex, NO_SCAN_LIMIT};
use super::data::{DataEntry, HashedName, LeafSearch};
use super::fork::DirFork;
use super::{DirFormat, Directory};
use crate::dabtree::TreeReader;

/// The result of a lookup in the collision index.
pub(super) enum CollisionLookup<Id> {
    /// The hash is not indexed.
    NotIndexed,
    Absent,
    Present(DataEntry<Id>),
}

impl<F: DirFork> Directory<'_, F> {
    /// Looks up a name in the collision index.
    pub(super) fn lookup_in_index(&mut self, wanted: HashedName<'_>) -> Result<CollisionLookup<F::BlockId>> {
        let geometry = self.geometry;
        let Some(index) = self.fork.collision_index().as_ref().filter(|index| index.has(wanted.hash)) else {
            return Ok(CollisionLookup::NotIndexed);
        };
        let mut next = index.first(index.tag(wanted.hash, &hash::folded(wanted.name, geometry)));
        while let Some(pointer) = next {
            let (block, offset) = pointer.split(geometry);
            let data = self.read_data_block(block)?;
            if let Some(found) = self.compare(data, block, offset, wanted)? {
                let data_index = self.data_index(block);
                return Ok(CollisionLookup::Present(DataEntry { found, data, data_index, offset }));
            }
            next = self.fork.collision_index().as_ref().and_then(|index| index.next(pointer));
        }
        Ok(CollisionLookup::Absent)
    }

    /// Answers the search of a leaf from the index; `first` is the first leaf entry with at least this hash. Returns
    /// `None` if the hash is not indexed, or the index disagrees with the leaf.
    #[cold]
    pub(super) fn search_index(
        &mut self,
        leaf: F::BlockId,
        slots: LeafEntryRange,
        first: usize,
        wanted: HashedName<'_>,
    ) -> Result<Option<LeafSearch<F::BlockId>>> {
        let indexed = match self.lookup_in_index(wanted)? {
            CollisionLookup::NotIndexed => return Ok(None),
            CollisionLookup::Absent => return Ok(Some(LeafSearch::Absent(first))),
            CollisionLookup::Present(indexed) => indexed,
        };
        let pointer = indexed.found.pointer;
        let at = self.fork.collision_index().as_ref().and_then(|index| index.leaf(pointer));
        let in_tree = dabtree::magic(self.fork.bytes(leaf)) == Some(LEAFN_MAGIC);
        if let Some(at) = at.filter(|at| in_tree && *at != self.fork.identity(leaf).file_block) {
            return Ok(Some(LeafSearch::InOtherLeaf(indexed, at)));
        }
        let slot =
            self.view(leaf, |bytes| Ok(leaf_entries::position(slots.view(bytes)?, wanted.hash, pointer)))?;
        if slot.is_none() {
            self.forget_index();
        }
        Ok(slot.map(|slot| LeafSearch::Found(indexed.with_slot(slot))))
    }

    /// Continues a search that has reached the scan limit: builds the index for the hash, or else compares all its
    /// names.
    #[cold]
    pub(super) fn index_and_search(
        &mut self,
        leaf: F::BlockId,
        slots: LeafEntryRange,
        first: usize,
        wanted: HashedName<'_>,
    ) -> Result<LeafSearch<F::BlockId>> {
        if self.index_hash(leaf, wanted.hash)
            && let Some(search) = self.search_index(leaf, slots, first, wanted)?
        {
            return Ok(search);
        }
        self.search_leaf(leaf, slots, wanted, NO_SCAN_LIMIT)
    }

    /// Builds the index for a hash. The caller still uses the block `kept`, which is not released. Errors are not
    /// reported: the search of the leaves that follows meets them itself.
    fn index_hash(&mut self, kept: F::BlockId, hash: u32) -> bool {
        let mut index = self.fork.collision_index().take().unwrap_or_default();
        let done = !index.has(hash)
            && self.collect(&index, kept, hash).is_ok_and(|entries| index.add_hash(hash, &entries));
        if !index.is_empty() {
            *self.fork.collision_index() = Some(index);
        }
        done
    }

    /// Collects the entries of a hash from all leaves; stops when the limit is exceeded.
    fn collect(
        &mut self,
        index: &CollisionIndex,
        kept: F::BlockId,
        hash: u32,
    ) -> Result<Vec<CollisionEntry>> {
        let mut entries = Vec::new();
        match self.format()? {
            DirFormat::Shortform => {}
            DirFormat::Block(id) => {
                let slots = self.view(id, block_format::BlockLeafShape::of)?.slots;
                self.collect_leaf(index, id, slots, kept, hash, &mut entries)?;
            }
            DirFormat::Leaf(id) => {
                let slots = self.leaf_shape(id)?.slots;
                self.collect_leaf(index, id, slots, kept, hash, &mut entries)?;
            }
            DirFormat::Node(root) => {
                let mut path = self.descend(root, hash)?;
                // In a tree with a loop, a leaf comes up twice, and the hash is not indexed.
                for _ in 0..self.max_leaves()? {
                    let leaf = path.leaf.id;
                    let slots = self.leaf_shape(leaf)?.slots;
                    let continues = self.collect_leaf(index, leaf, slots, kept, hash, &mut entries)?;
                    if !continues || !CollisionIndex::has_room(entries.len()) || !self.advance(&mut path)? {
                        break;
                    }
                    if leaf != kept {
                        self.fork.release(leaf);
                    }
                }
            }
        }
        Ok(entries)
    }

    /// Collects the entries of a hash from one leaf. Returns whether they may continue in the next leaf.
    fn collect_leaf(
        &mut self,
        index: &CollisionIndex,
        leaf: F::BlockId,
        slots: LeafEntryRange,
        kept: F::BlockId,
        hash: u32,
        entries: &mut Vec<CollisionEntry>,
    ) -> Result<bool> {
        let (pointers, continues) = self.view(leaf, |bytes| {
            let view = slots.view(bytes)?;
            let rest = view.get(leaf_entries::first_at_least(view, hash)..).unwrap_or_default();
            let run = rest.iter().take_while(|entry| entry.hashval.get() == hash);
            let pointers: Vec<DataPtr> = run.map(LeafEntry::pointer).collect();
            let continues = pointers.len() == rest.len();
            Ok((pointers, continues))
        })?;
        let at = self.fork.identity(leaf).file_block;
        let geometry = self.geometry;
        let mut last_read = None;
        for pointer in pointers.into_iter().filter(|pointer| *pointer != DataPtr::NULL) {
            let (block, offset) = pointer.split(geometry);
            let data = self.read_next_data(&mut last_read, block, kept)?;
            let tag = self.view(data, |bytes| {
                let name = entry::at(bytes, geometry, block, offset)?.name;
                Ok(index.tag(hash, &hash::folded(name, geometry)))
            })?;
            entries.push(CollisionEntry { tag, pointer, leaf: at });
        }
        if let Some((_, id)) = last_read.filter(|(_, id)| *id != kept) {
            self.fork.release(id);
        }
        Ok(continues)
    }

    /// Adds a new entry to the index.
    #[inline]
    pub(super) fn index_added(&mut self, wanted: HashedName<'_>, pointer: DataPtr, leaf: FileBlock) {
        if self.fork.collision_index().is_some() {
            self.update(wanted, |index, tag| index.add(wanted.hash, CollisionEntry { tag, pointer, leaf }));
        }
    }

    /// Removes an entry from the index.
    #[inline]
    pub(super) fn index_removed(&mut self, name: &[u8], pointer: DataPtr) {
        if self.fork.collision_index().is_some() {
            let wanted = self.hashed(name);
            self.update(wanted, |index, tag| index.remove(wanted.hash, tag, pointer));
        }
    }

    /// Changes the index if it covers the hash. Drops an index that is inconsistent or too large.
    fn update(&mut self, wanted: HashedName<'_>, change: impl FnOnce(&mut CollisionIndex, u32) -> bool) {
        let geometry = self.geometry;
        let Some(index) = self.fork.collision_index().as_mut().filter(|index| index.has(wanted.hash)) else {
            return;
        };
        let tag = index.tag(wanted.hash, &hash::folded(wanted.name, geometry));
        if !change(index, tag) || index.is_empty() {
            self.forget_index();
        }
    }

    /// Records that leaf entries have moved to another block.
    #[inline]
    pub(super) fn index_moved(&mut self, entries: &[LeafEntry], to: FileBlock) {
        if let Some(index) = self.fork.collision_index() {
            entries.iter().for_each(|entry| index.moved(entry.hashval.get(), entry.pointer(), to));
        }
    }

    /// Drops the index. The next long search builds another one.
    pub(super) fn forget_index(&mut self) {
        *self.fork.collision_index() = None;
    }
}
