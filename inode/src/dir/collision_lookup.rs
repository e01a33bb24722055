//! The directory and its index of names that share a hash: asking it, building it, keeping it up to date.

use base::FileBlock;
use format::dabtree;
use format::dir::DataPtr;
use format::dir::edit::leaf_entries::LeafEntryRange;
use format::dir::edit::{block_format, entry, leaf_entries};
use format::dir::leaf::{LEAFN_MAGIC, LeafEntry};
use format::hash;

use super::blocks::DirBlocks;
use super::collisions::{Collisions, NO_SCAN_LIMIT, RunEntry};
use super::data::{Search, Spot, Wanted};
use super::error::Result;
use super::{Directory, Form};

/// What the index says of a name.
pub(super) enum Known<Id> {
    /// Nothing: its hash is not indexed.
    Unindexed,
    Absent,
    Present(Spot<Id>),
}

impl<B: DirBlocks> Directory<'_, B> {
    /// Asks the index for a name.
    pub(super) fn known(&mut self, wanted: Wanted<'_>) -> Result<Known<B::Id>> {
        let geometry = self.geometry;
        let Some(index) = self.blocks.collisions().as_ref().filter(|index| index.has(wanted.hash)) else {
            return Ok(Known::Unindexed);
        };
        let mut next = index.first(index.tag(wanted.hash, &hash::folded(wanted.name, geometry)));
        while let Some(pointer) = next {
            let (block, offset) = pointer.split(geometry);
            let data = self.read_data(block)?;
            if let Some(found) = self.compare(data, (block, offset), wanted)? {
                let index = self.data_index(block);
                return Ok(Known::Present(Spot { found, data, index, offset }));
            }
            next = self.blocks.collisions().as_ref().and_then(|index| index.next(pointer));
        }
        Ok(Known::Absent)
    }

    /// Answers a search in a leaf, whose first entry of at least this hash is `first`, from the index. `None` where it
    /// has not indexed the hash, or does not agree with the leaf.
    #[cold]
    pub(super) fn search_index(
        &mut self,
        leaf: B::Id,
        (slots, first): (LeafEntryRange, usize),
        wanted: Wanted<'_>,
    ) -> Result<Option<Search<B::Id>>> {
        let spot = match self.known(wanted)? {
            Known::Unindexed => return Ok(None),
            Known::Absent => return Ok(Some(Search::Miss(first))),
            Known::Present(spot) => spot,
        };
        let pointer = spot.found.pointer;
        let at = self.blocks.collisions().as_ref().and_then(|index| index.leaf(pointer));
        let in_tree = dabtree::magic(self.blocks.bytes(leaf)) == Some(LEAFN_MAGIC);
        if let Some(at) = at.filter(|at| in_tree && *at != self.blocks.identity(leaf).file_block) {
            return Ok(Some(Search::Elsewhere(spot, at)));
        }
        let slot =
            self.look(leaf, |bytes| Ok(leaf_entries::position(slots.view(bytes)?, wanted.hash, pointer)))?;
        if slot.is_none() {
            self.forget_index();
        }
        Ok(slot.map(|slot| Search::Hit(spot.with_slot(slot))))
    }

    /// Goes on with a search that has reached the scan limit: indexes the hash, or else compares with all its names.
    #[cold]
    pub(super) fn index_and_search(
        &mut self,
        leaf: B::Id,
        (slots, first): (LeafEntryRange, usize),
        wanted: Wanted<'_>,
    ) -> Result<Search<B::Id>> {
        if self.index_run(leaf, wanted.hash)
            && let Some(search) = self.search_index(leaf, (slots, first), wanted)?
        {
            return Ok(search);
        }
        self.search(leaf, slots, wanted, NO_SCAN_LIMIT)
    }

    /// Indexes all names of a hash; whoever calls it goes on using the leaf `kept`. `false` where it is not possible:
    /// what is in the way, a search through the leaves reports if it meets it.
    fn index_run(&mut self, kept: B::Id, hash: u32) -> bool {
        let mut index = self.blocks.collisions().take().unwrap_or_default();
        let done = !index.has(hash)
            && self.gather(&index, kept, hash).is_ok_and(|entries| index.add_run(hash, &entries));
        if !index.is_empty() {
            *self.blocks.collisions() = Some(index);
        }
        done
    }

    /// All entries that a search for a hash comes by; of too many, as many as show that they are.
    fn gather(&mut self, index: &Collisions, kept: B::Id, hash: u32) -> Result<Vec<RunEntry>> {
        let mut entries = Vec::new();
        match self.form()? {
            Form::Inside => {}
            Form::Single(id) => {
                let slots = self.look(id, block_format::BlockLeafShape::of)?.slots;
                self.gather_leaf(index, (id, slots, kept), hash, &mut entries)?;
            }
            Form::Alone(id) => {
                let slots = self.leaf_shape(id)?.slots;
                self.gather_leaf(index, (id, slots, kept), hash, &mut entries)?;
            }
            Form::Tree(root) => {
                let mut path = self.descend(root, hash)?;
                // A tree that leads in circles has some leaf twice, and is not indexed.
                for _ in 0..self.most_leaves()? {
                    let leaf = path.leaf.id;
                    let slots = self.leaf_shape(leaf)?.slots;
                    let goes_on = self.gather_leaf(index, (leaf, slots, kept), hash, &mut entries)?;
                    if !goes_on || !Collisions::has_room(entries.len()) || !self.advance(&mut path)? {
                        break;
                    }
                    if leaf != kept {
                        self.blocks.release(leaf);
                    }
                }
            }
        }
        Ok(entries)
    }

    /// Those of one leaf; whether the next leaf may have more.
    fn gather_leaf(
        &mut self,
        index: &Collisions,
        (leaf, slots, kept): (B::Id, LeafEntryRange, B::Id),
        hash: u32,
        entries: &mut Vec<RunEntry>,
    ) -> Result<bool> {
        let (pointers, goes_on) = self.look(leaf, |bytes| {
            let view = slots.view(bytes)?;
            let behind = view.get(leaf_entries::first_at_least(view, hash)..).unwrap_or_default();
            let run = behind.iter().take_while(|entry| entry.hashval.get() == hash);
            let pointers: Vec<DataPtr> = run.map(LeafEntry::pointer).collect();
            let goes_on = pointers.len() == behind.len();
            Ok((pointers, goes_on))
        })?;
        let at = self.blocks.identity(leaf).file_block;
        let geometry = self.geometry;
        let mut open = None;
        for pointer in pointers.into_iter().filter(|pointer| *pointer != DataPtr::NULL) {
            let (block, offset) = pointer.split(geometry);
            let data = self.open_data(&mut open, block, kept)?;
            let tag = self.look(data, |bytes| {
                let name = entry::at(bytes, geometry, block, offset)?.name;
                Ok(index.tag(hash, &hash::folded(name, geometry)))
            })?;
            entries.push(RunEntry { tag, pointer, leaf: at });
        }
        if let Some((_, id)) = open.filter(|(_, id)| *id != kept) {
            self.blocks.release(id);
        }
        Ok(goes_on)
    }

    /// A name has got an entry.
    #[inline]
    pub(super) fn index_added(&mut self, wanted: Wanted<'_>, pointer: DataPtr, leaf: FileBlock) {
        if self.blocks.collisions().is_some() {
            self.update(wanted, |index, tag| index.add(wanted.hash, RunEntry { tag, pointer, leaf }));
        }
    }

    /// A name has lost its entry.
    #[inline]
    pub(super) fn index_removed(&mut self, name: &[u8], pointer: DataPtr) {
        if self.blocks.collisions().is_some() {
            let wanted = self.wanted(name);
            self.update(wanted, |index, tag| index.remove(wanted.hash, tag, pointer));
        }
    }

    /// Changes the index, if it has the hash. An index that did not have what it should, or is too large, is dropped.
    fn update(&mut self, wanted: Wanted<'_>, change: impl FnOnce(&mut Collisions, u32) -> bool) {
        let geometry = self.geometry;
        let Some(index) = self.blocks.collisions().as_mut().filter(|index| index.has(wanted.hash)) else {
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
        if let Some(index) = self.blocks.collisions() {
            entries.iter().for_each(|entry| index.moved(entry.hashval.get(), entry.pointer(), to));
        }
    }

    /// Drops the index. The next search that is long builds another.
    pub(super) fn forget_index(&mut self) {
        *self.blocks.collisions() = None;
    }
}
