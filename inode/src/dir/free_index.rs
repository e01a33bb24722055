//! The room of each data block, in free blocks. The free block of a data block follows from its number; one that tells
//! of no block does not exist.

use base::FileBlock;
use format::dir::DirSpace;
use format::dir::data::NULL_BEST;
use format::dir::edit::free;
use format::dir::free::max_bests;

use super::Directory;
use super::error::{Error, Result};
use super::fork::{DirBlockType, DirFork};

impl<F: DirFork> Directory<'_, F> {
    fn free_block(&self, table: usize) -> FileBlock {
        let first = DirSpace::Free.first_block(self.geometry);
        FileBlock(first.get() + ((table as u64) << self.geometry.dir_block_log))
    }

    /// The block with room for so many bytes that is nearest to the end: what is growing has it there. With the free
    /// block that tells so.
    pub(super) fn find_free_space(&mut self, size: usize) -> Result<Option<(usize, F::BlockId)>> {
        let first = DirSpace::Free.first_block(self.geometry);
        let end = self.fork.end().min(DirSpace::Free.end_block(self.geometry));
        let tables = (end.get().saturating_sub(first.get()) >> self.geometry.dir_block_log) as usize;
        let most = max_bests(self.geometry);
        for table in (0..tables).rev() {
            let block = self.free_block(table);
            // The last one is what the map ends with.
            if table + 1 < tables && self.fork.next_mapped(block)? != Some(block) {
                continue;
            }
            let (id, shape) = self.read_free_block(block, table)?;
            let found = self.view(id, |bytes| {
                let fits =
                    |best: &format::ondisk::U16| best.get() != NULL_BEST && usize::from(best.get()) >= size;
                Ok(shape.bests(bytes)?.iter().rposition(fits))
            })?;
            if let Some(index) = found {
                return Ok(Some((table * most + index, id)));
            }
            self.fork.release(id);
        }
        Ok(None)
    }

    /// Brings a free block in, which must be about the data blocks that follow from its place.
    fn read_free_block(&mut self, block: FileBlock, table: usize) -> Result<(F::BlockId, free::FreeShape)> {
        let id = self.fork.read(block, DirBlockType::Free)?;
        let shape = self.view(id, free::FreeShape::of)?;
        let first = shape.first as usize;
        let expected = table * max_bests(self.geometry);
        if first != expected {
            let damage = format::Damage::new("directory free block", "firstdb", expected, first);
            return Err(self.damaged_at(id, damage));
        }
        Ok((id, shape))
    }

    /// Blocks that noting a new data block takes.
    pub(super) fn blocks_to_index(&mut self, index: usize) -> Result<u32> {
        let block = self.free_block(index / max_bests(self.geometry));
        Ok(u32::from(self.fork.next_mapped(block)? != Some(block)))
    }

    /// Notes the room that is left of what [`find_free_space`](Self::find_free_space) has found.
    pub(super) fn update_best(&mut self, (index, table): (usize, F::BlockId), best: u16) -> Result<()> {
        let within = index % max_bests(self.geometry);
        self.edit(table, |open, _| free::set(open, within, Some(best)).map(|_| ()))
    }

    /// Notes the room of a data block; `None`: it is gone. Free blocks come and go with that.
    pub(super) fn set_best_free(&mut self, index: usize, best: Option<u16>) -> Result<()> {
        let most = max_bests(self.geometry);
        let (table, within) = (index / most, index % most);
        let block = self.free_block(table);
        if self.fork.next_mapped(block)? != Some(block) {
            if best.is_none() {
                return Ok(());
            }
            let first = u32::try_from(table * most)
                .map_err(|_| Error::NoSpace { what: "a directory beyond 32 GiB" })?;
            let id = self.fork.allocate(block)?;
            let at = self.fork.identity(id);
            return self.edit(id, |open, geometry| {
                free::init(open, geometry, at, first, &[])?;
                free::set(open, within, best).map(|_| ())
            });
        }
        let (id, _) = self.read_free_block(block, table)?;
        let left = self.edit(id, |open, _| free::set(open, within, best))?;
        if left.used == 0 && best.is_none() && self.fork.can_free(block)? {
            self.fork.free(block, id)?;
        }
        Ok(())
    }
}
