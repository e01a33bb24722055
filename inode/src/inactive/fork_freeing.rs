//! How the extents of a fork are freed.

use base::lock::Rank;
use error::Error;
use format::extent::Extent;
use format::inode::{FileType, ForkKind, flags2};
use journal::engine::{DiskExtent, Transaction};

use super::{STEP_BUFFERS, STEP_EXTENTS};
use crate::inode::LockedInode;
use crate::shared::Shared;

/// How the blocks of a fork are freed.
pub(super) struct ForkFreeing {
    /// Number of blocks of a metadata buffer; `u64::MAX` if a buffer is a whole extent, `None` for file data.
    pub buffer_blocks: Option<u64>,
    pub may_share: bool,
}

impl ForkFreeing {
    pub fn of(shared: &Shared, state: &LockedInode, kind: ForkKind) -> Self {
        let buffer_blocks = match (kind, state.dinode().file_type()) {
            (ForkKind::Attr, _) => Some(1),
            (ForkKind::Data, Some(FileType::Directory)) => Some(1 << shared.geometry.dir_block_log),
            (ForkKind::Data, Some(FileType::Symlink)) => Some(u64::MAX),
            (ForkKind::Data, _) => None,
        };
        let reflink = state.core().flags2.get() & flags2::REFLINK != 0;
        Self { buffer_blocks, may_share: reflink && kind == ForkKind::Data }
    }

    /// The last part of an extent, as long as one step can free.
    pub fn step_part(&self, extent: &Extent) -> Extent {
        let max = match self.buffer_blocks {
            Some(blocks) => blocks.saturating_mul(STEP_BUFFERS / STEP_EXTENTS as u64),
            None => u64::MAX,
        };
        let skip = extent.count.saturating_sub(max);
        Extent {
            offset: (extent.offset.get() + skip).into(),
            start: (extent.start.get() + skip).into(),
            count: extent.count - skip,
            unwritten: extent.unwritten,
        }
    }

    /// Cancels the metadata blocks of an extent in the log, so that recovery does not replay them over new contents.
    pub fn invalidate(&self, shared: &Shared, tx: &mut Transaction, extent: &Extent) -> Result<(), Error> {
        let Some(blocks) = self.buffer_blocks else { return Ok(()) };
        let geometry = &shared.geometry;
        let step = blocks.min(extent.count);
        for skip in (0..extent.count).step_by(step as usize) {
            let count = step.min(extent.count - skip);
            // The extent was verified when it was loaded.
            let at = geometry.fs_block_offset((extent.start.get() + skip).into()).unwrap_or(0);
            let bytes = (count << geometry.block_log) as u32;
            let id = tx.read(DiskExtent { daddr: (at >> 9).into(), bytes }, Rank::Fork, |_| Ok(()))?;
            tx.invalidate(id);
        }
        Ok(())
    }
}
