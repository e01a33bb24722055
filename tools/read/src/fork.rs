//! Blocks of a fork by logical block number, for directories and attributes.

use base::{Daddr, FileBlock, FsBlock};
use format::extent::Extent;
use format::inode::{Dinode, ForkKind};
use format::{Damage, ForkBlock, Place};

use crate::error::{Error, Result};
use crate::extents::ExtentWalk;
use crate::volume::Volume;

/// Reads blocks of a fork. It keeps the last extent, because the next block is often in it.
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

    /// Reads `buf.len()` bytes, whole blocks, from a logical block on. They need not be contiguous on
    /// the disk, but a hole is an error.
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
            let (part, tail) = rest.split_at_mut(take);
            self.volume.read_blocks(start, part)?;
            first.get_or_insert(start);
            at = FileBlock(at.get() + (take as u64).div_ceil(u64::from(geometry.block_size)));
            rest = tail;
        }
        Ok(self.identity(block, first.unwrap_or_default()))
    }

    /// The extent that contains a logical block.
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

    /// The identity (owner, address, UUID) that the block at `start` must have.
    pub(crate) fn identity(&self, file_block: FileBlock, start: FsBlock) -> ForkBlock {
        identity(self.volume, &self.inode, file_block, start)
    }

    /// Damage at a logical block of this fork.
    pub(crate) fn damaged(&self, block: FileBlock, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.inode.ino()).at(block), damage)
    }
}

/// The identity that the block of a fork at a disk block must have. The extent has been verified.
pub(crate) fn identity(
    volume: &Volume,
    inode: &Dinode<'_>,
    file_block: FileBlock,
    start: FsBlock,
) -> ForkBlock {
    let offset = volume.geometry().fs_block_offset(start).unwrap_or(0);
    ForkBlock { ino: inode.ino(), file_block, daddr: Daddr(offset >> 9) }
}

/// Damage in a block with this identity.
pub(crate) fn at(block: ForkBlock) -> impl FnOnce(Damage) -> Error {
    move |damage| Error::damaged(block.place(), damage)
}
