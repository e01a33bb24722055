//! The free index of node format: the best of each data block, in free blocks.
//!
//! Free block number `n` holds the bests of data blocks `n * max_bests` to `(n + 1) * max_bests - 1`. A free block that
//! would hold no best is not allocated. In leaf format the bests are in the leaf instead.

use base::FileBlock;
use format::dir::DirSpace;
use format::dir::data::NULL_BEST;
use format::dir::edit::free;
use format::dir::free::max_bests;

use super::Directory;
use super::fork::{DirBlockType, DirFork};
use super::{Error, Result};
use crate::dabtree::{HashTree, TreeReader};

/// A data block with enough unused bytes.
pub(super) struct DataBlockWithSpace<Id> {
    /// Block number in the data space.
    pub index: usize,
    /// The free block that has its best.
    pub free_block: Id,
}

impl<F: DirFork> Directory<'_, F> {
    fn free_block(&self, number: usize) -> FileBlock {
        let first = DirSpace::Free.first_block(self.geometry);
        FileBlock(first.get() + ((number as u64) << self.geometry.dir_block_log))
    }

    /// Finds a data block with `size` unused bytes in one region: its number, and the free block that has its best.
    /// Searches from the end, where a growing directory has its free space.
    pub(super) fn find_free_space(&mut self, size: usize) -> Result<Option<DataBlockWithSpace<F::BlockId>>> {
        let first = DirSpace::Free.first_block(self.geometry);
        let end = self.fork.end()?.min(DirSpace::Free.end_block(self.geometry));
        let count = (end.get().saturating_sub(first.get()) >> self.geometry.dir_block_log) as usize;
        let max = max_bests(self.geometry);
        for number in (0..count).rev() {
            let block = self.free_block(number);
            // The last free block is mapped: the map ends with it.
            if number + 1 < count && self.fork.next_mapped(block)? != Some(block) {
                continue;
            }
            let (id, shape) = self.read_free_block(block, number)?;
            let found = self.view(id, |bytes| {
                let fits =
                    |best: &format::ondisk::U16| best.get() != NULL_BEST && usize::from(best.get()) >= size;
                Ok(shape.bests(bytes)?.iter().rposition(fits))
            })?;
            if let Some(index) = found {
                return Ok(Some(DataBlockWithSpace { index: number * max + index, free_block: id }));
            }
            self.fork.release(id);
        }
        Ok(None)
    }

    /// Reads free block number `number`, and checks that it covers the right data blocks.
    fn read_free_block(&mut self, block: FileBlock, number: usize) -> Result<(F::BlockId, free::FreeShape)> {
        let id = self.fork.read(block, DirBlockType::Free)?;
        let shape = self.view(id, free::FreeShape::of)?;
        let first = shape.first as usize;
        let expected = number * max_bests(self.geometry);
        if first != expected {
            let damage = format::Damage::new("directory free block", "firstdb", expected, first);
            return Err(self.damaged_at(id, damage));
        }
        Ok((id, shape))
    }

    /// Directory blocks that recording the best of data block `index` allocates.
    pub(super) fn blocks_to_index(&mut self, index: usize) -> Result<u32> {
        let block = self.free_block(index / max_bests(self.geometry));
        Ok(u32::from(self.fork.next_mapped(block)? != Some(block)))
    }

    /// Updates the best of a data block that [`find_free_space`](Self::find_free_space) returned.
    pub(super) fn update_best(&mut self, space: DataBlockWithSpace<F::BlockId>, best: u16) -> Result<()> {
        let within = space.index % max_bests(self.geometry);
        self.edit(space.free_block, |block, _| free::set(block, within, Some(best)).map(|_| ()))
    }

    /// Sets the best of data block `index`; `None` if the block was freed. Allocates and frees free blocks as
    /// needed.
    pub(super) fn set_best(&mut self, index: usize, best: Option<u16>) -> Result<()> {
        let max = max_bests(self.geometry);
        let (number, within) = (index / max, index % max);
        let block = self.free_block(number);
        if self.fork.next_mapped(block)? != Some(block) {
            if best.is_none() {
                return Ok(());
            }
            let first = u32::try_from(number * max)
                .map_err(|_| Error::NoSpace { what: "a directory beyond 32 GiB" })?;
            let id = self.fork.allocate(block)?;
            let at = self.fork.identity(id);
            return self.edit(id, |block, geometry| {
                free::init(block, geometry, at, first, &[])?;
                free::set(block, within, best).map(|_| ())
            });
        }
        let (id, _) = self.read_free_block(block, number)?;
        let left = self.edit(id, |block, _| free::set(block, within, best))?;
        if left.used == 0 && best.is_none() && self.fork.can_free(block, 0)? {
            self.fork.free(block, id)?;
        }
        Ok(())
    }
}
