//! The directory and its index of names that share a hash: asking it, building it, keeping it up to date.

use base::FileBlock;
use format::dabtree;
use format::dir::DataPtr;
use format::dir::edit::leaf_entries::LeafEntryRange;
use format::dir::edit::{block_format, entry, leaf_entries};
use format::dir::leaf::{LEAFN_MAGIC, LeafEntry};
use format::hash;

use super::collision_index::{CollisionEntry, CollisionIndex, NO_SCAN_LIMIT};
use super::data::{DataEntry, HashedName, LeafSearch};
use super::error::Result;
use super::fork::DirFork;
use super::{DirFormat, Directory};

/// What the index says of a name.
pub(super) enum CollisionLookup<Id> {
    /// Nothing: its hash is not indexed.
    NotIndexed,
    Absent,
    Present(DataEntry<Id>),
}

impl<F: DirFork> Directory<'_, F> {
    /// Asks the index for a name.
    pub(super) fn lookup_in_index(&mut self, wanted: HashedName<'_>) -> Result<CollisionLookup<F::BlockId>> {
        let geometry = self.geometry;
        let Some(index) = self.fork.collision_index().as_ref().filter(|index| index.has(wanted.hash)) else {
            return Ok(CollisionLookup::NotIndexed);
        };
        let mut next = index.first(index.tag(wanted.hash, &hash::folded(wanted.name, geometry)));
        while let Some(pointer) = next {
            let (block, offset) = pointer.split(geometry);
            let data = self.read_data_block(block)?;
            if let Some(found) = self.compare(data, (block, offset), wanted)? {
                let index = self.data_index(block);
                return Ok(CollisionLookup::Present(DataEntry { found, data, index, offset }));
            }
            next = self.fork.collision_index().as_ref().and_then(|index| index.next(pointer));
        }
        Ok(CollisionLookup::Absent)
    }

    /// Answers a search in a leaf, whose first entry of at least this hash is `first`, from the index. `None` where it
    /// has not indexed the hash, or does not agree with the leaf.
    #[cold]
    pub(super) fn search_index(
        &mut self,
        leaf: F::BlockId,
        (slots, first): (LeafEntryRange, usize),
        wanted: HashedName<'_>,
    ) -> Result<Option<LeafSearch<F::BlockId>>> {
        let spot = match self.lookup_in_index(wanted)? {
            CollisionLookup::NotIndexed => return Ok(None),
            CollisionLookup::Absent => return Ok(Some(LeafSearch::Absent(first))),
            CollisionLookup::Present(spot) => spot,
        };
        let pointer = spot.found.pointer;
        let at = self.fork.collision_index().as_ref().and_then(|index| index.leaf(pointer));
        let in_tree = dabtree::magic(self.fork.bytes(leaf)) == Some(LEAFN_MAGIC);
        if let Some(at) = at.filter(|at| in_tree && *at != self.fork.identity(leaf).file_block) {
            return Ok(Some(LeafSearch::InOtherLeaf(spot, at)));
        }
        let slot =
            self.view(leaf, |bytes| Ok(leaf_entries::position(slots.view(bytes)?, wanted.hash, pointer)))?;
        if slot.is_none() {
            self.forget_index();
        }
        Ok(slot.map(|slot| LeafSearch::Found(spot.with_slot(slot))))
    }

    /// Goes on with a search that has reached the scan limit: indexes the hash, or else compares with all its names.
    #[cold]
    pub(super) fn index_and_search(
        &mut self,
        leaf: F::BlockId,
        (slots, first): (LeafEntryRange, usize),
        wanted: HashedName<'_>,
    ) -> Result<LeafSearch<F::BlockId>> {
        if self.index_hash(leaf, wanted.hash)
            && let Some(search) = self.search_index(leaf, (slots, first), wanted)?
        {
            return Ok(search);
        }
        self.search(leaf, slots, wanted, NO_SCAN_LIMIT)
    }

    /// Indexes all names of a hash; whoever calls it goes on using the leaf `kept`. `false` where it is not possible:
    /// what is in the way, a search through the leaves reports if it meets it.
    fn index_hash(&mut self, kept: F::BlockId, hash: u32) -> bool {
        let mut index = self.fork.collision_index().take().unwrap_or_default();
        let done = !index.has(hash)
            && self.collect(&index, kept, hash).is_ok_and(|entries| index.add_hash(hash, &entries));
        if !index.is_empty() {
            *self.fork.collision_index() = Some(index);
        }
        done
    }

    /// All entries that a search for a hash comes by; of too many, as many as show that they are.
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
                self.collect_leaf(index, (id, slots, kept), hash, &mut entries)?;
            }
            DirFormat::Leaf(id) => {
                let slots = self.leaf_shape(id)?.slots;
                self.collect_leaf(index, (id, slots, kept), hash, &mut entries)?;
            }
            DirFormat::Node(root) => {
                let mut path = self.descend(root, hash)?;
                // A tree that leads in circles has some leaf twice, and is not indexed.
                for _ in 0..self.max_leaves()? {
                    let leaf = path.leaf.id;
                    let slots = self.leaf_shape(leaf)?.slots;
                    let goes_on = self.collect_leaf(index, (leaf, slots, kept), hash, &mut entries)?;
                    if !goes_on || !CollisionIndex::has_room(entries.len()) || !self.advance(&mut path)? {
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

    /// Those of one leaf; whether the next leaf may have more.
    fn collect_leaf(
        &mut self,
        index: &CollisionIndex,
        (leaf, slots, kept): (F::BlockId, LeafEntryRange, F::BlockId),
        hash: u32,
        entries: &mut Vec<CollisionEntry>,
    ) -> Result<bool> {
        let (pointers, goes_on) = self.view(leaf, |bytes| {
            let view = slots.view(bytes)?;
            let behind = view.get(leaf_entries::first_at_least(view, hash)..).unwrap_or_default();
            let run = behind.iter().take_while(|entry| entry.hashval.get() == hash);
            let pointers: Vec<DataPtr> = run.map(LeafEntry::pointer).collect();
            let goes_on = pointers.len() == behind.len();
            Ok((pointers, goes_on))
        })?;
        let at = self.fork.identity(leaf).file_block;
        let geometry = self.geometry;
        let mut open = None;
        for pointer in pointers.into_iter().filter(|pointer| *pointer != DataPtr::NULL) {
            let (block, offset) = pointer.split(geometry);
            let data = self.open_data(&mut open, block, kept)?;
            let tag = self.view(data, |bytes| {
                let name = entry::at(bytes, geometry, block, offset)?.name;
                Ok(index.tag(hash, &hash::folded(name, geometry)))
            })?;
            entries.push(CollisionEntry { tag, pointer, leaf: at });
        }
        if let Some((_, id)) = open.filter(|(_, id)| *id != kept) {
            self.fork.release(id);
        }
        Ok(goes_on)
    }

    /// A name has got an entry.
    #[inline]
    pub(super) fn index_added(&mut self, wanted: HashedName<'_>, pointer: DataPtr, leaf: FileBlock) {
        if self.fork.collision_index().is_some() {
            self.update(wanted, |index, tag| index.add(wanted.hash, CollisionEntry { tag, pointer, leaf }));
        }
    }

    /// A name has lost its entry.
    #[inline]
    pub(super) fn index_removed(&mut self, name: &[u8], pointer: DataPtr) {
        if self.fork.collision_index().is_some() {
            let wanted = self.hashed(name);
            self.update(wanted, |index, tag| index.remove(wanted.hash, tag, pointer));
        }
    }

    /// Changes the index, if it has the hash. An index that did not have what it should, or is too large, is dropped.
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

    /// Leaf entries were moved to a block.
    #[inline]
    pub(super) fn index_moved(&mut self, entries: &[LeafEntry], to: FileBlock) {
        if let Some(index) = self.fork.collision_index() {
            entries.iter().for_each(|entry| index.moved(entry.hashval.get(), entry.pointer(), to));
        }
    }

    /// Drops the index. The next search that is long builds another.
    pub(super) fn forget_index(&mut self) {
        *self.fork.collision_index() = None;
    }
}
