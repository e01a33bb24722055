//! Directories that are read without locks: parts of them are copied in a read section, and visited afterwards.

use std::ops::ControlFlow;

use base::{FileBlock, Ino};
use format::Geometry;
use format::dir::{DataPtr, DirEntry, DirSpace};
use format::inode::ForkKind;
use journal::engine::PeekedBuffers;

use super::fork::DirBlockType;
use super::inode_fork::{block_extents, extents_of_block, owner};
use super::readdir::{visit_block, visit_shortform};
use crate::state::InodeState;

/// A copy of a part of a directory.
#[derive(Debug)]
pub enum DirPart {
    /// All entries, which are in the inode.
    Shortform {
        /// Inode number of the directory.
        ino: Ino,
        /// Contents of the data fork.
        bytes: Vec<u8>,
    },
    /// A data block.
    Block {
        /// The first file block of the data block.
        at: FileBlock,
        /// Contents of the data block.
        bytes: Vec<u8>,
    },
    /// There are no entries at the position or after it.
    End,
}

impl DirPart {
    /// Copies the part with the first entry at the position `from` or later. `None` if it cannot be read without locks.
    /// The caller [peeks](crate::Inode::peek) the inode, in a read section.
    pub fn copy(
        geometry: &Geometry,
        state: &InodeState,
        buffers: &PeekedBuffers<'_>,
        from: DataPtr,
    ) -> Option<Self> {
        let ino = state.ino();
        if let Some(bytes) = state.local() {
            return Some(Self::Shortform { ino, bytes: bytes.to_vec() });
        }
        let first = from.split(geometry).0;
        let list = state.extents_around(ForkKind::Data, first, 0, extents_of_block(geometry))?;
        let end = DirSpace::Leaf.first_block(geometry);
        let next = list.get(list.index_at(first)).map(|extent| extent.offset.max(first));
        let Some(at) = next.filter(|block| *block < end) else { return Some(Self::End) };
        let bytes = buffers.bytes(&block_extents(geometry, list, at).ok()?)?;
        // Another directory may map the block, too.
        let is_own = owner(&bytes, DirBlockType::Data) == Some(ino.get());
        is_own.then(|| Self::Block { at, bytes: bytes.to_vec() })
    }

    /// Calls `visit` for the entries at positions from `from` on, until it breaks. Returns the position after the part,
    /// unless `visit` broke or there are no more parts.
    ///
    /// # Errors
    /// Damage, which the caller finds again, and reports, with the directory locked.
    pub fn visit(
        &self,
        geometry: &Geometry,
        from: DataPtr,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<Option<DataPtr>, format::Damage> {
        match self {
            Self::End => Ok(None),
            Self::Shortform { ino, bytes } => {
                visit_shortform(bytes, geometry, *ino, from, &mut visit).map(|_| None)
            }
            Self::Block { at, bytes } => {
                let visited = visit_block(bytes, geometry, *at, from, &mut visit)?;
                let next = FileBlock(at.get() + (1 << geometry.dir_block_log));
                let goes_on = visited.is_continue() && next < DirSpace::Leaf.first_block(geometry);
                Ok(goes_on.then(|| DataPtr::new(next, 0, geometry)))
            }
        }
    }
}
