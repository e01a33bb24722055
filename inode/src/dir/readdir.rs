//! Iteration over the entries of a directory, in the order of their positions.

use std::ops::ControlFlow;

use base::{FileBlock, Ino};
use format::Geometry;
use format::dir::edit::{entry, shortform};
use format::dir::{DataPtr, DirEntry, DirSpace, data, entry_size};

use super::Result;
use super::fork::DirFork;
use super::{Directory, FTYPE_DIRECTORY};
use crate::dabtree::Checked;

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
        if let Some(bytes) = self.fork.local() {
            let visited = visit_shortform(bytes, self.geometry, self.fork.ino(), from, &mut visit);
            return visited.map(drop).map_err(|damage| self.damaged(damage));
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
}

/// Calls `visit` for the entries of a shortform directory at positions from `from` on.
pub(super) fn visit_shortform(
    bytes: &[u8],
    geometry: &Geometry,
    ino: Ino,
    from: DataPtr,
    visit: &mut impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Checked<ControlFlow<()>> {
    let parent = shortform::ShortformCounts::of(bytes)?.parent;
    let dot = data::HEADER_SIZE;
    let dots = [(&b"."[..], ino, dot), (&b".."[..], parent, dot + entry_size(1, geometry))];
    for (name, ino, offset) in dots {
        let pointer = DataPtr::new(FileBlock(0), offset, geometry);
        let entry = DirEntry { name, ino, ftype: FTYPE_DIRECTORY, pointer };
        if pointer >= from && visit(entry).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    for found in shortform::walk(bytes, geometry)? {
        let entry = found?.entry;
        if entry.pointer >= from && visit(entry).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Calls `visit` for the entries of one data block at positions from `from` on.
pub(super) fn visit_block(
    bytes: &[u8],
    geometry: &Geometry,
    block: FileBlock,
    from: DataPtr,
    visit: &mut impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Checked<ControlFlow<()>> {
    let mut offset = 0;
    while let Some((at, entry)) = entry::next(bytes, geometry, block, offset)? {
        if entry.pointer >= from && visit(entry).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        offset = at + entry_size(entry.name.len(), geometry);
    }
    Ok(ControlFlow::Continue(()))
}
