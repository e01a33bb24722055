//! Directories in node format: a hash tree of leaves under nodes. Lookup, insertion and removal; the conversion to leaf
//! format.

use base::FileBlock;
use format::dabtree::NodeEntry;
use format::dabtree::edit as node;
use format::dir::DirSpace;
use format::dir::data::NULL_BEST;
use format::dir::edit::entry::NewEntry;
use format::dir::edit::{free, leaf, leaf_entries};
use format::dir::leaf::{LEAF1_MAGIC, LEAFN_MAGIC, LeafEntry};
use format::{Damage, ForkBlock, Geometry, ensure};

use super::Directory;
use super::collision_index::{NO_SCAN_LIMIT, SCAN_LIMIT};
use super::data::{DataEntry, HashedName, LeafHit, LeafSearch};
use super::fork::{DirBlockType, DirFork};
use super::free_index::DataBlockWithSpace;
use super::insert_slot::LeafInsertSlot;
use super::{Error, Result};
use crate::dabtree::join::join_leaf;
use crate::dabtree::split::{add_leaf, push_leaf_root_down, put_leaf};
use crate::dabtree::{Checked, HashTree, PathBlock, TreePath, TreeReader};

/// The result of a search in the hash tree.
pub(super) struct NodeLookup<Id> {
    /// The path to the last leaf searched.
    pub path: TreePath<Id>,
    pub hit: Option<LeafHit<Id>>,
    /// The slot of a new leaf entry; `None` if the search has left the first leaf with the hash.
    pub insert_slot: Option<LeafInsertSlot>,
}

impl<F: DirFork> TreeReader for Directory<'_, F> {
    type Id = F::BlockId;

    #[inline]
    fn geometry<'g>(&self) -> &'g Geometry
    where
        Self: 'g,
    {
        self.geometry
    }

    fn root(&self) -> FileBlock {
        DirSpace::Leaf.first_block(self.geometry)
    }

    fn read_tree_block(&mut self, block: FileBlock) -> Result<F::BlockId> {
        let inside = DirSpace::of(block, self.geometry) == Some(DirSpace::Leaf)
            && block.get().is_multiple_of(self.per_block());
        if !inside {
            let expected = "a directory block of the leaf space";
            return Err(self.damaged(Damage::new("hash tree node", "before", expected, block)));
        }
        self.fork.read(block, DirBlockType::LeafOrNode)
    }

    fn identity(&self, id: F::BlockId) -> ForkBlock {
        self.fork.identity(id)
    }

    #[inline]
    fn bytes(&self, id: F::BlockId) -> &[u8] {
        self.fork.bytes(id)
    }

    fn verify_leaf(bytes: &[u8], _: &Geometry) -> Checked<()> {
        let is_tree_leaf = leaf::LeafShape::of(bytes)?.bests.is_none();
        ensure!(is_tree_leaf, "directory leaf", "magic", "a leaf of the tree", "another");
        Ok(())
    }
}

impl<F: DirFork> HashTree for Directory<'_, F> {
    type Buffer = F::Buffer;
    type LeafEntry = LeafEntry;

    /// Stale entries stay until the leaf is compacted.
    const KEEPS_EMPTY_LEAVES: bool = true;

    fn new_tree_block(&mut self) -> Result<PathBlock<F::BlockId>> {
        let block = self.fork.first_hole(self.root())?;
        if DirSpace::of(block, self.geometry) != Some(DirSpace::Leaf) {
            return Err(Error::NoSpace { what: "a hash tree of a directory beyond 32 GiB" });
        }
        Ok(PathBlock { block, id: self.fork.allocate(block)?, index: 0 })
    }

    fn can_free_tree_block(&mut self, block: FileBlock, earlier: usize) -> Result<bool> {
        self.fork.can_free(block, earlier)
    }

    fn free_tree_block(&mut self, block: FileBlock, id: F::BlockId) -> Result<()> {
        self.fork.free(block, id)
    }

    #[inline]
    fn block_mut(&mut self, id: F::BlockId) -> &mut F::Buffer {
        self.fork.block_mut(id)
    }

    fn entries_moved(&mut self, entries: &[LeafEntry], to: FileBlock) {
        self.index_moved(entries, to);
    }

    fn leaf_fill(bytes: &[u8], geometry: &Geometry) -> Checked<(usize, usize)> {
        Ok((leaf::LeafShape::of(bytes)?.live(), leaf::max_entries(geometry)))
    }

    fn last_leaf_hash(bytes: &[u8], _: &Geometry) -> Checked<Option<u32>> {
        leaf::LeafShape::of(bytes)?.last_hash(bytes)
    }

    fn leaf_entries(bytes: &[u8], _: &Geometry) -> Checked<Vec<LeafEntry>> {
        leaf::LeafShape::of(bytes)?.slots.compacted(bytes, None)
    }

    fn entry_hash(entry: &LeafEntry) -> u32 {
        entry.hashval.get()
    }

    fn init_leaf(block: &mut F::Buffer, geometry: &Geometry, at: ForkBlock) -> Checked<()> {
        leaf::init(block, geometry, at, LEAFN_MAGIC)
    }

    fn put_leaf(block: &mut F::Buffer, _: &Geometry, entries: &[LeafEntry]) -> Checked<()> {
        leaf::put_entries(block, entries)
    }
}

impl<F: DirFork> Directory<'_, F> {
    /// Moves the path forward to a given leaf; `false` if the leaf is not found.
    fn advance_to(&mut self, path: &mut TreePath<F::BlockId>, leaf: FileBlock) -> Result<bool> {
        for _ in 0..self.max_leaves()? {
            if path.leaf.block == leaf {
                return Ok(true);
            }
            let Some(step) = path.nodes.last_mut() else { return Ok(false) };
            let (id, next) = (step.id, step.index + 1);
            let found = self.view(id, |bytes| {
                let children = node::entries(bytes)?.iter().map(NodeEntry::child).enumerate();
                Ok(children.skip(next).find(|(_, child)| *child == leaf).map(|(index, _)| index))
            })?;
            // Skips the other leaves of this node.
            let count = self.view(id, node::NodeShape::of)?.count;
            step.index = found.unwrap_or(count).saturating_sub(1);
            if !self.advance(path)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Completes a lookup whose entry the collision index has found in a later leaf.
    #[cold]
    fn path_to_indexed(
        &mut self,
        mut path: TreePath<F::BlockId>,
        indexed: DataEntry<F::BlockId>,
        leaf: FileBlock,
        wanted: HashedName<'_>,
    ) -> Result<NodeLookup<F::BlockId>> {
        if self.advance_to(&mut path, leaf)? {
            let shape = self.leaf_shape(path.leaf.id)?;
            let slot = self.view(path.leaf.id, |bytes| {
                Ok(leaf_entries::position(shape.slots.view(bytes)?, wanted.hash, indexed.found.pointer))
            })?;
            if let Some(slot) = slot {
                return Ok(NodeLookup { path, hit: Some(indexed.with_slot(slot)), insert_slot: None });
            }
        }
        self.forget_index();
        let root = self.read_tree_block(self.root())?;
        let path = self.descend(root, wanted.hash)?;
        self.node_search(path, wanted, NO_SCAN_LIMIT)
    }

    pub(super) fn node_find(&mut self, root: F::BlockId, name: &[u8]) -> Result<NodeLookup<F::BlockId>> {
        let wanted = self.hashed(name);
        let path = self.descend(root, wanted.hash)?;
        self.node_search(path, wanted, SCAN_LIMIT)
    }

    /// Searches from the first leaf that may contain the hash.
    #[inline]
    pub(super) fn node_search(
        &mut self,
        mut path: TreePath<F::BlockId>,
        wanted: HashedName<'_>,
        scan_limit: usize,
    ) -> Result<NodeLookup<F::BlockId>> {
        let mut searched = 0;
        // The bound ends the search in a tree with a loop.
        while searched == 0 || searched < self.max_leaves()? {
            let shape = self.leaf_shape(path.leaf.id)?;
            let insert_slot =
                |slot| (searched == 0).then_some(LeafInsertSlot { hash: wanted.hash, slot, shape });
            match self.search_leaf(path.leaf.id, shape.slots, wanted, scan_limit)? {
                LeafSearch::Found(hit) => return Ok(NodeLookup { path, hit: Some(hit), insert_slot: None }),
                LeafSearch::InOtherLeaf(indexed, leaf) => {
                    return self.path_to_indexed(path, indexed, leaf, wanted);
                }
                LeafSearch::Absent(slot) => {
                    return Ok(NodeLookup { path, hit: None, insert_slot: insert_slot(slot) });
                }
                // Entries of the hash may continue in the next leaf only if the hash, or a lower one, ends this leaf.
                LeafSearch::MayContinue(slot) if !self.advance(&mut path)? => {
                    return Ok(NodeLookup { path, hit: None, insert_slot: insert_slot(slot) });
                }
                LeafSearch::MayContinue(_) => searched += 1,
            }
        }
        Err(self.damaged(Damage::new("hash tree node", "before", "each leaf once", "some again")))
    }

    pub(super) fn max_leaves(&mut self) -> Result<u64> {
        let end = self.fork.mapped_end(DirSpace::Leaf.end_block(self.geometry))?;
        Ok(end.get().saturating_sub(self.root().get()) >> self.geometry.dir_block_log)
    }

    /// Adds a name that the directory does not have.
    pub(super) fn node_insert(&mut self, new: NewEntry<'_>) -> Result<()> {
        let hash = self.hashed(new.name).hash;
        let root = self.read_tree_block(self.root())?;
        let path = self.descend(root, hash)?;
        let shape = self.leaf_shape(path.leaf.id)?;
        let first = |bytes: &[u8]| Ok(leaf_entries::first_at_least(shape.slots.view(bytes)?, hash));
        let slot = self.view(path.leaf.id, first)?;
        self.node_insert_at(path, LeafInsertSlot { hash, slot, shape }, new)
    }

    /// Adds a name, given the path to the first leaf that may contain its hash and the slot there.
    pub(super) fn node_insert_at(
        &mut self,
        path: TreePath<F::BlockId>,
        LeafInsertSlot { hash, slot, shape }: LeafInsertSlot,
        new: NewEntry<'_>,
    ) -> Result<()> {
        let full = leaf::fit(&shape, 0) == leaf::LeafFit::Full;
        let splits = if full { self.blocks_to_split(&path)? } else { 0 };
        let space = self.find_free_space(self.entry_size(new))?;
        let (index, data) = match &space {
            Some(DataBlockWithSpace { index, .. }) => {
                self.fork.ensure_blocks(splits)?;
                (*index, self.read_data_block(self.data_block(*index))?)
            }
            None => {
                let hole = self.fork.first_hole(FileBlock(0))?;
                let index = self.data_index(hole);
                let free_blocks = self.blocks_to_index(index)?;
                self.fork.ensure_blocks(splits + 1 + free_blocks)?;
                (index, self.new_data_block(index)?)
            }
        };
        let (pointer, best) = self.put_entry(data, index, new)?;
        match space {
            Some(space) => self.update_best(space, best)?,
            None => self.set_best(index, Some(best))?,
        }
        self.index_added(HashedName { name: new.name, hash }, pointer, path.leaf.block);
        if full {
            return self.split_leaf(path, slot, leaf_entries::entry(hash, pointer));
        }
        self.edit(path.leaf.id, |block, _| leaf::insert_into(block, &shape, hash, pointer, slot))?;
        // Unless the entry became the last one, or replaced a stale one, the highest hash is the same.
        if slot < shape.slots.count && shape.stale == 0 { Ok(()) } else { self.fix_leaf_hash(&path) }
    }

    /// Directory blocks that splitting a leaf allocates: one for the leaf, one for each full node above, and one for
    /// the root.
    fn blocks_to_split(&self, path: &TreePath<F::BlockId>) -> Result<u32> {
        let mut need = 1;
        for step in path.nodes.iter().rev() {
            let shape = self.view(step.id, node::NodeShape::of)?;
            if shape.count < shape.most {
                return Ok(need);
            }
            need += 1;
        }
        Ok(need + 1)
    }

    pub(super) fn node_remove(&mut self, path: TreePath<F::BlockId>, hit: LeafHit<F::BlockId>) -> Result<()> {
        let best = self.remove_entry(&hit)?;
        self.set_best(hit.data_index, best)?;
        self.edit(path.leaf.id, |block, _| leaf::remove(block, hit.slot))?;
        join_leaf(self, path)?;
        self.node_to_leaf()
    }

    /// Splits a full leaf and inserts an entry before `slot`.
    fn split_leaf(&mut self, mut path: TreePath<F::BlockId>, slot: usize, new: LeafEntry) -> Result<()> {
        let right = self.new_tree_block()?;
        push_leaf_root_down(self, &mut path)?;
        let left = path.leaf;
        let count = self.leaf_shape(left.id)?.slots.count;
        // With the new entry, both halves have the same number of entries, or the left one has one more or less.
        let goes_left = slot <= count / 2;
        let kept = if count.is_multiple_of(2) || goes_left { count / 2 } else { count / 2 + 1 };
        let moved = self.view(left.id, |bytes| leaf::entries_from(bytes, kept))?;
        put_leaf(self, right.id, &moved)?;
        self.index_moved(&moved, right.block);
        self.edit(left.id, |block, _| leaf::truncate(block, kept))?;
        let (target, slot) = if goes_left { (left, slot) } else { (right, slot.saturating_sub(kept)) };
        self.edit(target.id, |block, _| leaf::insert(block, new.hashval.get(), new.pointer(), slot))?;
        self.index_moved(&[new], target.block);
        add_leaf(self, &mut path, right)
    }

    /// Converts to leaf format if one leaf and one free block are left and fit one block; then to smaller formats.
    fn node_to_leaf(&mut self) -> Result<()> {
        let root = self.root();
        let id = self.read_tree_block(root)?;
        if self.is_node(id) {
            return Ok(());
        }
        let first = DirSpace::Free.first_block(self.geometry);
        let end = self.fork.mapped_end(DirSpace::Free.end_block(self.geometry))?;
        let next = self.fork.next_mapped(FileBlock(root.get() + self.per_block()))?;
        let only = next == Some(first) && end.get() == first.get() + self.per_block();
        if !only || !self.fork.can_free(first, 0)? {
            return Ok(());
        }
        let free_id = self.fork.read(first, DirBlockType::Free)?;
        let bests = self.view(free_id, |bytes| Ok(free::bests(bytes)?.to_vec()))?;
        let shape = self.leaf_shape(id)?;
        let used = bests.iter().rposition(|best| best.get() != NULL_BEST).map_or(0, |last| last + 1);
        let size = self.geometry.dir_block_size as usize;
        if used == 0 || leaf::leaf1_size(shape.live(), used) > size {
            return Ok(());
        }
        let bests = bests.get(..used).unwrap_or_default();
        self.edit(id, |block, _| {
            if shape.stale > 0 {
                let entries = shape.slots.compacted(format::edit::BlockMut::bytes(block), None)?;
                leaf::put_entries(block, &entries)?;
            }
            leaf::put_bests(block, bests)?;
            leaf::set_magic(block, LEAF1_MAGIC)
        })?;
        self.fork.free(first, free_id)?;
        self.leaf_to_block(id)
    }
}
