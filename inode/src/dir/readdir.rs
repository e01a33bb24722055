//! Iteration over the entries of a directory, in the order of their positions.

use std::ops::ControlFlow;

use base::FileBlock;
use format::dir::edit::shortform;
use format::dir::{DataPtr, DirEntry, DirSpace, data, entry_size};

use super::Result;
use super::fork::DirFork;
use super::{Directory, FTYPE_DIRECTORY};

impl<F: DirFork> Directory<'_, F> {
    /// Calls `visit` for each entry at position `from` or later, including `.` and `..`, until it breaks.
    ///
    /// A position stays valid while the directory changes, including conversions of its format. To continue after an
    /// entry, pass its [`DirEntry::pointer`] plus one. Linux uses the same positions.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn read(
        &mut self,
        from: DataPtr,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.fork.local().is_some() {
            return self.shortform_read(from, &mut visit);
        }
        let end = DirSpace::Leaf.first_block(self.geometry);
        let mut next = from.split(self.geometry).0;
        while let Some(block) = self.fork.next_mapped(next)?.filter(|block| *block < end) {
            let id = self.read_data_block(block)?;
            if self.visit_block(block, id, from, &mut visit)?.is_break() {
                return Ok(());
            }
            self.fork.release(id);
            next = FileBlock(block.get() + self.per_block());
        }
        Ok(())
    }

    fn shortform_read(
        &self,
        from: DataPtr,
        visit: &mut impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let geometry = self.geometry;
        let bytes = self.fork.local().unwrap_or_default();
        let parent = self.shortform_counts()?.parent;
        let dot = data::HEADER_SIZE;
        let dots = [(&b"."[..], self.fork.ino(), dot), (&b".."[..], parent, dot + entry_size(1, geometry))];
        for (name, ino, offset) in dots {
            let pointer = DataPtr::new(FileBlock(0), offset, geometry);
            let entry = DirEntry { name, ino, ftype: FTYPE_DIRECTORY, pointer };
            if pointer >= from && visit(entry).is_break() {
                return Ok(());
            }
        }
        for found in shortform::walk(bytes, geometry).map_err(|damage| self.damaged(damage))? {
            let entry = found.map_err(|damage| self.damaged(damage))?.entry;
            if entry.pointer >= from && visit(entry).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}
