//! Directories in leaf format: data blocks, and one leaf with all leaf entries and the bests of the data blocks; and
//! the conversions to node and block format.

use base::FileBlock;
use format::dir::DirSpace;
use format::dir::data::NULL_BEST;
use format::dir::edit::entry::NewEntry;
use format::dir::edit::leaf::{self, LeafFit, LeafShape};
use format::dir::edit::{block_format, data_block, free};
use format::dir::leaf::LEAFN_MAGIC;
use format::edit::BlockMut;
use format::ondisk::U16;

use super::Directory;
use super::Result;
use super::collision_index::SCAN_LIMIT;
use super::data::{HashedName, LeafHit, LeafSearch};
use super::fork::DirFork;
use super::insert_slot::LeafInsertSlot;
use crate::dabtree::{HashTree, TreeReader};

impl<F: DirFork> Directory<'_, F> {
    /// Searches the leaf. Returns the layout of the leaf, too.
    pub(super) fn leaf_search(
        &mut self,
        id: F::BlockId,
        wanted: HashedName<'_>,
    ) -> Result<(LeafShape, LeafSearch<F::BlockId>)> {
        let shape = self.leaf_shape(id)?;
        Ok((shape, self.search_leaf(id, shape.slots, wanted, SCAN_LIMIT)?))
    }

    pub(super) fn leaf_find(&mut self, id: F::BlockId, name: &[u8]) -> Result<Option<LeafHit<F::BlockId>>> {
        let wanted = self.hashed(name);
        Ok(self.leaf_search(id, wanted)?.1.hit())
    }

    /// Adds a name that the directory does not have. Its leaf entry goes into `slot.slot`. The entry goes into the
    /// first data block with enough free space, otherwise into a new one at the first hole.
    pub(super) fn leaf_insert(
        &mut self,
        id: F::BlockId,
        LeafInsertSlot { hash, slot, shape }: LeafInsertSlot,
        new: NewEntry<'_>,
    ) -> Result<()> {
        let size = self.entry_size(new);
        let (fitting, hole, count) = self.view(id, |bytes| {
            let bests = leaf::bests_of(bytes, &shape)?;
            let fits = |best: &U16| best.get() != NULL_BEST && usize::from(best.get()) >= size;
            let hole = bests.iter().position(|best| best.get() == NULL_BEST);
            Ok((bests.iter().position(fits), hole.unwrap_or(bests.len()), bests.len()))
        })?;
        let index = fitting.unwrap_or(hole);
        let more_bests = usize::from(index == count);
        let fit = leaf::fit(&shape, more_bests);
        self.fork.ensure_blocks(u32::from(fitting.is_none()) + u32::from(fit == LeafFit::Full))?;
        let (slot, mut shape) = match fit {
            LeafFit::Fits => (slot, shape),
            LeafFit::Compacted => {
                let slot = self.edit(id, |block, _| leaf::compact(block, slot))?;
                (slot, self.leaf_shape(id)?)
            }
            LeafFit::Full => {
                self.leaf_to_node(id)?;
                return self.node_insert(new);
            }
        };
        let data = match fitting {
            Some(_) => self.read_data_block(self.data_block(index))?,
            None => self.new_data_block(index)?,
        };
        let (pointer, best) = self.put_entry(data, index, new)?;
        self.index_added(HashedName { name: new.name, hash }, pointer, self.root());
        self.edit(id, |block, _| {
            if more_bests > 0 {
                let mut bests = leaf::bests(block.bytes())?.to_vec();
                bests.push(U16::new(best));
                leaf::put_bests(block, &bests)?;
                shape = LeafShape::of(block.bytes())?;
            } else {
                leaf::set_best_of(block, &shape, index, best)?;
            }
            leaf::insert_into(block, &shape, hash, pointer, slot)
        })
    }

    pub(super) fn leaf_remove(&mut self, id: F::BlockId, hit: LeafHit<F::BlockId>) -> Result<()> {
        let best = self.remove_entry(&hit)?;
        self.edit(id, |block, _| {
            leaf::remove(block, hit.slot)?;
            leaf::set_best(block, hit.data_index, best.unwrap_or(NULL_BEST))
        })?;
        if best.is_none() {
            self.trim_bests(id)?;
        }
        self.leaf_to_block(id)
    }

    /// Cuts the array of bests after the last data block.
    fn trim_bests(&mut self, id: F::BlockId) -> Result<()> {
        self.edit(id, |block, _| {
            let bests = leaf::bests(block.bytes())?;
            let last = bests.iter().rposition(|best| best.get() != NULL_BEST);
            let kept = last.map_or(0, |last| last + 1);
            if kept == bests.len() {
                return Ok(());
            }
            let bests = bests.get(..kept).unwrap_or_default().to_vec();
            leaf::put_bests(block, &bests)
        })
    }

    /// Frees empty data blocks at the end that earlier removals could not free.
    fn trim_empty(&mut self, id: F::BlockId) -> Result<()> {
        loop {
            let (count, last) = self.view(id, |bytes| {
                let bests = leaf::bests(bytes)?;
                Ok((bests.len(), bests.last().map_or(0, |best| usize::from(best.get()))))
            })?;
            let Some(index) = count.checked_sub(1).filter(|index| *index > 0) else { return Ok(()) };
            let block = self.data_block(index);
            if last != data_block::max_free(self.geometry) || !self.fork.can_free(block, 0)? {
                return Ok(());
            }
            let data = self.read_data_block(block)?;
            self.free_data_block(block, data)?;
            self.edit(id, |block, _| leaf::set_best(block, index, NULL_BEST))?;
            self.trim_bests(id)?;
        }
    }

    /// Converts to block format if there is one data block with room for the leaf entries at its end; then to shortform
    /// if the entries fit the inode.
    pub(super) fn leaf_to_block(&mut self, id: F::BlockId) -> Result<()> {
        self.trim_empty(id)?;
        let (root, shape) = (self.root(), self.leaf_shape(id)?);
        if shape.bests != Some(1) || self.fork.mapped_end(root)?.get() != self.per_block() {
            return Ok(());
        }
        let data = self.read_data_block(FileBlock(0))?;
        let last = self.view(data, |bytes| data_block::unused_before(bytes, bytes.len()))?;
        let need = block_format::leaf_size(shape.live());
        if last.is_none_or(|last| last.length < need) || !self.fork.can_free(root, 0)? {
            return Ok(());
        }
        let entries = self.view(id, |bytes| shape.slots.compacted(bytes, None))?;
        self.edit(data, |block, geometry| block_format::add_leaf(block, geometry, &entries))?;
        self.index_moved(&entries, FileBlock(0));
        self.fork.free(root, id)?;
        self.block_to_shortform(data)
    }

    /// Converts to node format: the bests move to a free block, and the leaf becomes the root of the hash tree.
    fn leaf_to_node(&mut self, id: F::BlockId) -> Result<()> {
        let free_id = self.fork.allocate(DirSpace::Free.first_block(self.geometry))?;
        let at = self.fork.identity(free_id);
        let bests = self.view(id, |bytes| Ok(leaf::bests(bytes)?.to_vec()))?;
        self.edit(free_id, |block, geometry| free::init(block, geometry, at, 0, &bests))?;
        self.edit(id, |block, _| leaf::set_magic(block, LEAFN_MAGIC))
    }
}
