//! Blocks of a fork by their logical number: what directories and attributes are made of.

use base::{Daddr, FileBlock, FsBlock};
use format::extent::Extent;
use format::inode::{Dinode, ForkKind};
use format::{Damage, ForkBlock, Place};

use crate::error::{Error, Result};
use crate::extents::ExtentWalk;
use crate::volume::Volume;

/// Reads runs of a fork's blocks, and remembers the last extent, since the next run is often in it.
pub(crate) struct ForkReader<'a> {
    volume: &'a Volume,
    inode: Dinode<'a>,
    kind: ForkKind,
    last: Option<Extent>,
}

impl<'a> ForkReader<'a> {
    pub(crate) fn new(volume: &'a Volume, inode: &Dinode<'a>, kind: ForkKind) -> Self {
        Self { volume, inode: *inode, kind, last: None }
    }

    /// Reads `buf.len()` bytes, whole blocks, from a logical block on. They need not lie together on the disk, but
    /// none may be missing.
    pub(crate) fn read(&mut self, block: FileBlock, buf: &mut [u8]) -> Result<ForkBlock> {
        let geometry = self.volume.geometry();
        let mut first = None;
        let (mut at, mut rest) = (block, buf);
        while !rest.is_empty() {
            let extent = self.extent(at)?;
            let skip = at.get() - extent.offset.get();
            let start = FsBlock(extent.start.get() + skip);
            let bytes = (extent.count - skip).saturating_mul(u64::from(geometry.block_size));
            let take = usize::try_from(bytes).unwrap_or(usize::MAX).min(rest.len());
            let (part, behind) = rest.split_at_mut(take);
            self.volume.read_blocks(start, part)?;
            first.get_or_insert(start);
            at = FileBlock(at.get() + (take as u64).div_ceil(u64::from(geometry.block_size)));
            rest = behind;
        }
        Ok(self.identity(block, first.unwrap_or_default()))
    }

    /// The extent that holds a logical block.
    pub(crate) fn extent(&mut self, block: FileBlock) -> Result<Extent> {
        let holds = |extent: &Extent| (extent.offset..extent.end()).contains(&block);
        if let Some(extent) = self.last.filter(holds) {
            return Ok(extent);
        }
        let found = ExtentWalk::new(self.volume, &self.inode, self.kind, block)?.next().transpose()?;
        let extent = found.filter(holds).ok_or_else(|| {
            let field = if self.kind == ForkKind::Data { "data fork" } else { "attribute fork" };
            self.damaged(block, Damage::new("extent map", field, "a mapped block", "a hole"))
        })?;
        self.last = Some(extent);
        Ok(extent)
    }

    /// Who the block that begins at `start` must say it is.
    pub(crate) fn identity(&self, file_block: FileBlock, start: FsBlock) -> ForkBlock {
        identity(self.volume, &self.inode, file_block, start)
    }

    /// Damage at a logical block of this fork.
    pub(crate) fn damaged(&self, block: FileBlock, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.inode.ino()).at(block), damage)
    }
}

/// Who the block of a fork that begins at a disk block must say it is. The extent has been verified.
pub(crate) fn identity(
    volume: &Volume,
    inode: &Dinode<'_>,
    file_block: FileBlock,
    start: FsBlock,
) -> ForkBlock {
    let offset = volume.geometry().fs_block_offset(start).unwrap_or(0);
    ForkBlock { ino: inode.ino(), file_block, daddr: Daddr(offset >> 9) }
}

/// Damage of a block whose identity is known.
pub(crate) fn at(block: ForkBlock) -> impl FnOnce(Damage) -> Error {
    move |damage| Error::damaged(block.place(), damage)
}
