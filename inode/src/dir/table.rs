//! The room of each data block, in free blocks. The free block of a data block follows from its number; one that tells
//! of no block does not exist.

use base::FileBlock;
use format::dir::DirSpace;
use format::dir::data::NULL_BEST;
use format::dir::edit::free;
use format::dir::free::max_bests;

use super::Directory;
use super::blocks::{DirBlocks, Kind};
use super::error::{Error, Result};

impl<B: DirBlocks> Directory<'_, B> {
    fn free_block(&self, table: usize) -> FileBlock {
        let first = DirSpace::Free.first_block(self.geometry);
        FileBlock(first.get() + ((table as u64) << self.geometry.dir_block_log))
    }

    /// The block with room for so many bytes that is nearest to the end: what is growing has it there. With the free
    /// block that tells so.
    pub(super) fn find_room(&mut self, size: usize) -> Result<Option<(usize, B::Id)>> {
        let first = DirSpace::Free.first_block(self.geometry);
        let end = self.blocks.end().min(DirSpace::Free.end_block(self.geometry));
        let tables = (end.get().saturating_sub(first.get()) >> self.geometry.dir_block_log) as usize;
        let most = max_bests(self.geometry);
        for table in (0..tables).rev() {
            let block = self.free_block(table);
            // The last one is what the map ends with.
            if table + 1 < tables && self.blocks.next_mapped(block)? != Some(block) {
                continue;
            }
            let (id, shape) = self.read_table(block, table)?;
            let found = self.look(id, |bytes| {
                let fits =
                    |best: &format::ondisk::U16| best.get() != NULL_BEST && usize::from(best.get()) >= size;
                Ok(shape.bests(bytes)?.iter().rposition(fits))
            })?;
            if let Some(index) = found {
                return Ok(Some((table * most + index, id)));
            }
            self.blocks.release(id);
        }
        Ok(None)
    }

    /// Brings a free block in, which must be about the data blocks that follow from its place.
    fn read_table(&mut self, block: FileBlock, table: usize) -> Result<(B::Id, free::FreeShape)> {
        let id = self.blocks.read(block, Kind::Free)?;
        let shape = self.look(id, free::FreeShape::of)?;
        let first = shape.first as usize;
        let expected = table * max_bests(self.geometry);
        if first != expected {
            let damage = format::Damage::new("directory free block", "firstdb", expected, first);
            return Err(self.damaged_at(id, damage));
        }
        Ok((id, shape))
    }

    /// Blocks that noting a new data block takes.
    pub(super) fn blocks_to_note(&mut self, index: usize) -> Result<u32> {
        let block = self.free_block(index / max_bests(self.geometry));
        Ok(u32::from(self.blocks.next_mapped(block)? != Some(block)))
    }

    /// Notes the room that is left of what [`find_room`](Self::find_room) has found.
    pub(super) fn note_left(&mut self, (index, table): (usize, B::Id), best: u16) -> Result<()> {
        let within = index % max_bests(self.geometry);
        self.edit(table, |open, _| free::set(open, within, Some(best)).map(|_| ()))
    }

    /// Notes the room of a data block; `None`: it is gone. Free blocks come and go with that.
    pub(super) fn note_room(&mut self, index: usize, best: Option<u16>) -> Result<()> {
        let most = max_bests(self.geometry);
        let (table, within) = (index / most, index % most);
        let block = self.free_block(table);
        if self.blocks.next_mapped(block)? != Some(block) {
            if best.is_none() {
                return Ok(());
            }
            let first = u32::try_from(table * most)
                .map_err(|_| Error::NoSpace { what: "a directory beyond 32 GiB" })?;
            let id = self.blocks.fresh(block)?;
            let at = self.blocks.identity(id);
            return self.edit(id, |open, geometry| {
                free::init(open, geometry, at, first, &[])?;
                free::set(open, within, best).map(|_| ())
            });
        }
        let (id, _) = self.read_table(block, table)?;
        let left = self.edit(id, |open, _| free::set(open, within, best))?;
        if left.used == 0 && best.is_none() && self.blocks.can_free(block)? {
            self.blocks.free(block, id)?;
        }
        Ok(())
    }
}
