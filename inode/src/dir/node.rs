//! Leaves under nodes: finding a name, adding and removing one.

use base::FileBlock;
use format::dabtree::edit as node;
use format::dabtree::{self, MAX_DEPTH, NODE_MAGIC};
use format::dir::DirSpace;
use format::dir::data::NULL_BEST;
use format::dir::edit::entry::NewEntry;
use format::dir::edit::{free, leaf, leaf_entries};
use format::dir::leaf::LEAF1_MAGIC;
use format::{Damage, ensure};
use smallvec::SmallVec;

use super::Directory;
use super::collision_index::{NO_SCAN_LIMIT, SCAN_LIMIT};
use super::data::{DataEntry, HashedName, IndexedEntry, LeafSearch};
use super::error::{Error, Result};
use super::fork::{DirBlockType, DirFork};

/// A block on the way from the root to a leaf.
#[derive(Clone, Copy)]
pub(super) struct PathBlock<Id> {
    pub block: FileBlock,
    pub id: Id,
    /// In a node: which child is the next step.
    pub index: usize,
}

/// What a search for a name came to.
pub(super) struct NodeLookup<Id> {
    /// To the leaf that was searched last.
    pub path: TreePath<Id>,
    /// The entry, if there is one.
    pub hit: Option<IndexedEntry<Id>>,
    /// Where a new entry goes, if the leaf is the first that may hold the hash.
    pub first: Option<LeafInsertSlot>,
}

/// Where the leaf entry of a new name goes.
#[derive(Clone, Copy)]
pub(super) struct LeafInsertSlot {
    pub hash: u32,
    pub slot: usize,
    /// The leaf as it is.
    pub shape: leaf::LeafShape,
}

/// The nodes on a way, the root first. Two levels of them are above a million entries.
pub(super) type PathNodes<Id> = SmallVec<[PathBlock<Id>; 2]>;

/// The way from the root to a leaf.
pub(super) struct TreePath<Id> {
    /// The root first.
    pub nodes: PathNodes<Id>,
    pub leaf: PathBlock<Id>,
}

impl<F: DirFork> Directory<'_, F> {
    /// Brings a block of the tree in, which a parent or a sibling named.
    pub(super) fn read_tree_block(&mut self, block: FileBlock) -> Result<F::BlockId> {
        let inside = DirSpace::of(block, self.geometry) == Some(DirSpace::Leaf)
            && block.get().is_multiple_of(self.per_block());
        if !inside {
            let expected = "a directory block of the leaf space";
            return Err(self.damaged(Damage::new("hash tree node", "before", expected, block)));
        }
        self.fork.read(block, DirBlockType::LeafOrNode)
    }

    /// Goes down from a block at `level`, 0 being leaves (`None`: the root's, whatever it is), to the child that `pick`
    /// chooses in each node.
    fn walk_down(
        &mut self,
        nodes: &mut PathNodes<F::BlockId>,
        (mut block, mut id): (FileBlock, F::BlockId),
        mut level: Option<u16>,
        pick: impl Fn(&[dabtree::NodeEntry]) -> usize,
    ) -> Result<PathBlock<F::BlockId>> {
        loop {
            let is_node = dabtree::magic(self.fork.bytes(id)) == Some(NODE_MAGIC);
            if !is_node {
                self.view(id, |bytes| {
                    let shape = leaf::LeafShape::of(bytes)?;
                    let fits = shape.bests.is_none() && level.is_none_or(|level| level == 0);
                    ensure!(
                        fits,
                        "directory leaf",
                        "magic",
                        "a leaf of the tree, where its level says",
                        "another"
                    );
                    Ok(())
                })?;
                return Ok(PathBlock { block, id, index: 0 });
            }
            let (step, child, below) = self.view(id, |bytes| {
                let found = node::NodeShape::of(bytes)?.level;
                let expected = level.unwrap_or(found);
                ensure!(
                    found == expected && found <= MAX_DEPTH && found > 0,
                    "hash tree node",
                    "level",
                    expected,
                    found
                );
                let entries = node::entries(bytes)?;
                let index = pick(entries).min(entries.len().saturating_sub(1));
                let child = entries.get(index).map(dabtree::NodeEntry::child);
                let child = child
                    .ok_or_else(|| Damage::new("hash tree node", "count", "at least 1", entries.len()))?;
                Ok((PathBlock { block, id, index }, child, found - 1))
            })?;
            nodes.push(step);
            (block, level) = (child, Some(below));
            id = self.read_tree_block(block)?;
        }
    }

    /// Goes down to the first leaf that may hold a hash; to the last one where all hashes are smaller.
    pub(super) fn descend(&mut self, root: F::BlockId, hash: u32) -> Result<TreePath<F::BlockId>> {
        let mut nodes = PathNodes::new();
        let root = (self.root(), root);
        let pick =
            |entries: &[dabtree::NodeEntry]| entries.partition_point(|entry| entry.hashval.get() < hash);
        let leaf = self.walk_down(&mut nodes, root, None, pick)?;
        Ok(TreePath { nodes, leaf })
    }

    /// Goes on to the leaf on the right; `false` at the end.
    pub(super) fn advance(&mut self, path: &mut TreePath<F::BlockId>) -> Result<bool> {
        let mut depth = path.nodes.len();
        while let Some(up) = depth.checked_sub(1) {
            let Some(step) = path.nodes.get_mut(up) else { return Ok(false) };
            let id = step.id;
            let next = step.index + 1;
            let (level, child) = self.view(id, |bytes| {
                let child = node::entries(bytes)?.get(next).map(dabtree::NodeEntry::child);
                Ok((node::NodeShape::of(bytes)?.level, child))
            })?;
            if let Some(child) = child {
                step.index = next;
                path.nodes.truncate(up + 1);
                let child = (child, self.read_tree_block(child)?);
                path.leaf = self.walk_down(&mut path.nodes, child, Some(level - 1), |_| 0)?;
                return Ok(true);
            }
            depth = up;
        }
        Ok(false)
    }

    /// Goes on to the leaf at a block, which is not in front of this one; `false` where there is none.
    fn advance_to(&mut self, path: &mut TreePath<F::BlockId>, leaf: FileBlock) -> Result<bool> {
        for _ in 0..self.max_leaves()? {
            if path.leaf.block == leaf {
                return Ok(true);
            }
            let Some(step) = path.nodes.last_mut() else { return Ok(false) };
            let (id, behind) = (step.id, step.index + 1);
            let found = self.view(id, |bytes| {
                let children = node::entries(bytes)?.iter().map(dabtree::NodeEntry::child).enumerate();
                Ok(children.skip(behind).find(|(_, child)| *child == leaf).map(|(index, _)| index))
            })?;
            // Without its other leaves, or on to the next node.
            let count = self.view(id, node::NodeShape::of)?.count;
            step.index = found.unwrap_or(count).saturating_sub(1);
            if !self.advance(path)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// The way to an entry that the index knows, in a leaf behind the first that may hold the hash.
    #[cold]
    fn path_to_indexed(
        &mut self,
        mut path: TreePath<F::BlockId>,
        (spot, leaf): (DataEntry<F::BlockId>, FileBlock),
        wanted: HashedName<'_>,
    ) -> Result<NodeLookup<F::BlockId>> {
        if self.advance_to(&mut path, leaf)? {
            let shape = self.leaf_shape(path.leaf.id)?;
            let slot = self.view(path.leaf.id, |bytes| {
                Ok(leaf_entries::position(shape.slots.view(bytes)?, wanted.hash, spot.found.pointer))
            })?;
            if let Some(slot) = slot {
                return Ok(NodeLookup { path, hit: Some(spot.with_slot(slot)), first: None });
            }
        }
        self.forget_index();
        let root = self.read_tree_block(self.root())?;
        let path = self.descend(root, wanted.hash)?;
        self.node_search(path, wanted, NO_SCAN_LIMIT)
    }

    /// Looks a name up.
    pub(super) fn node_find(&mut self, root: F::BlockId, name: &[u8]) -> Result<NodeLookup<F::BlockId>> {
        let wanted = self.hashed(name);
        let path = self.descend(root, wanted.hash)?;
        self.node_search(path, wanted, SCAN_LIMIT)
    }

    /// Searches the leaves from the first on that may hold the hash.
    #[inline]
    pub(super) fn node_search(
        &mut self,
        mut path: TreePath<F::BlockId>,
        wanted: HashedName<'_>,
        scan_limit: usize,
    ) -> Result<NodeLookup<F::BlockId>> {
        let mut searched = 0;
        // As many leaves as there can be: a tree that leads in circles ends here.
        while searched == 0 || searched < self.max_leaves()? {
            let shape = self.leaf_shape(path.leaf.id)?;
            let first = |slot| (searched == 0).then_some(LeafInsertSlot { hash: wanted.hash, slot, shape });
            match self.search(path.leaf.id, shape.slots, wanted, scan_limit)? {
                LeafSearch::Found(hit) => return Ok(NodeLookup { path, hit: Some(hit), first: None }),
                LeafSearch::InOtherLeaf(spot, leaf) => {
                    return self.path_to_indexed(path, (spot, leaf), wanted);
                }
                LeafSearch::Absent(slot) => return Ok(NodeLookup { path, hit: None, first: first(slot) }),
                // The hash may go on in the next leaf only if it ended this one, or if this one ends below it.
                LeafSearch::MayContinue(slot) if !self.advance(&mut path)? => {
                    return Ok(NodeLookup { path, hit: None, first: first(slot) });
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

    /// Adds a name that is not there.
    pub(super) fn node_insert(&mut self, new: NewEntry<'_>) -> Result<()> {
        let hash = self.hashed(new.name).hash;
        let root = self.read_tree_block(self.root())?;
        let path = self.descend(root, hash)?;
        let shape = self.leaf_shape(path.leaf.id)?;
        let first = |bytes: &[u8]| Ok(leaf_entries::first_at_least(shape.slots.view(bytes)?, hash));
        let slot = self.view(path.leaf.id, first)?;
        self.node_insert_at(path, LeafInsertSlot { hash, slot, shape }, new)
    }

    /// The same, with the way to the first leaf that may hold the hash, and the slot there.
    pub(super) fn node_insert_at(
        &mut self,
        mut path: TreePath<F::BlockId>,
        LeafInsertSlot { hash, slot, shape }: LeafInsertSlot,
        new: NewEntry<'_>,
    ) -> Result<()> {
        let full = leaf::fit(&shape, 0) == leaf::LeafFit::Full;
        let splits = if full { self.blocks_to_split(&path)? } else { 0 };
        let room = self.find_free_space(self.entry_size(new))?;
        let (index, data) = match room {
            Some((index, _)) => {
                self.fork.ensure_blocks(splits)?;
                (index, self.read_data_block(self.data_block(index))?)
            }
            None => {
                let hole = self.fork.first_hole(FileBlock(0))?;
                let index = self.data_index(hole);
                let tables = self.blocks_to_index(index)?;
                self.fork.ensure_blocks(splits + 1 + tables)?;
                (index, self.new_data_block(index)?)
            }
        };
        let (pointer, best) = self.put_entry(data, index, new)?;
        match room {
            Some(room) => self.update_best(room, best)?,
            None => self.set_best_free(index, Some(best))?,
        }
        self.index_added(HashedName { name: new.name, hash }, pointer, path.leaf.block);
        if full {
            return self.split_leaf(&mut path, slot, leaf_entries::entry(hash, pointer));
        }
        self.edit(path.leaf.id, |open, _| leaf::insert_into(open, &shape, hash, pointer, slot))?;
        // In front of others, among none that are stale, the last stays what it is.
        if slot < shape.slots.count && shape.stale == 0 { Ok(()) } else { self.fix_leaf_hash(&path) }
    }

    /// Blocks that the split of a leaf takes: one for each node that is full, too, and one for what was the root.
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

    /// Lets the nodes above a leaf know its highest hash.
    pub(super) fn fix_leaf_hash(&mut self, path: &TreePath<F::BlockId>) -> Result<()> {
        let shape = self.leaf_shape(path.leaf.id)?;
        match self.view(path.leaf.id, |bytes| shape.last_hash(bytes))? {
            Some(hash) => self.fix_hashes(&path.nodes, hash),
            None => Ok(()),
        }
    }

    /// Sets the hash of the child that each step goes on to, from the last step upwards as far as it is the node's
    /// highest.
    pub(super) fn fix_hashes(&mut self, nodes: &[PathBlock<F::BlockId>], hash: u32) -> Result<()> {
        for step in nodes.iter().rev() {
            let changed = self.edit(step.id, |open, _| node::set_hash(open, step.index, hash))?;
            let count = self.view(step.id, node::NodeShape::of)?.count;
            if !changed || step.index + 1 != count {
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) fn node_remove(
        &mut self,
        path: TreePath<F::BlockId>,
        hit: IndexedEntry<F::BlockId>,
    ) -> Result<()> {
        let best = self.remove_entry(&hit)?;
        self.set_best_free(hit.index, best)?;
        self.edit(path.leaf.id, |open, _| leaf::remove(open, hit.slot))?;
        self.join_leaf(path)?;
        self.node_to_leaf()
    }

    /// Puts the table of room back into the leaf, if there is but one leaf and both fit into it; and then on to smaller
    /// forms.
    fn node_to_leaf(&mut self) -> Result<()> {
        let root = self.root();
        let id = self.read_tree_block(root)?;
        if !self.root_is_leaf(id) {
            return Ok(());
        }
        let first = DirSpace::Free.first_block(self.geometry);
        let end = self.fork.mapped_end(DirSpace::Free.end_block(self.geometry))?;
        let next = self.fork.next_mapped(FileBlock(root.get() + self.per_block()))?;
        let only = next == Some(first) && end.get() == first.get() + self.per_block();
        if !only || !self.fork.can_free(first)? {
            return Ok(());
        }
        let free_id = self.fork.read(first, DirBlockType::Free)?;
        let bests = self.view(free_id, |bytes| Ok(free::bests(bytes)?.to_vec()))?;
        let shape = self.leaf_shape(id)?;
        let there = bests.iter().rposition(|best| best.get() != NULL_BEST).map_or(0, |last| last + 1);
        let size = self.geometry.dir_block_size as usize;
        if there == 0 || leaf::leaf1_size(shape.live(), there) > size {
            return Ok(());
        }
        let bests = bests.get(..there).unwrap_or_default();
        self.edit(id, |open, _| {
            if shape.stale > 0 {
                let entries = shape.slots.compacted(format::edit::BlockMut::bytes(open), None)?;
                leaf::put_entries(open, &entries)?;
            }
            leaf::put_bests(open, bests)?;
            leaf::set_magic(open, LEAF1_MAGIC)
        })?;
        self.fork.free(first, free_id)?;
        self.leaf_to_block(id)
    }

    /// A tree deeper than any can be.
    pub(super) fn too_deep(&self) -> Error {
        Error::NoSpace { what: "another level of a directory's tree" }
    }
}
