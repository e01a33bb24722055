//! The modes of `fallocate`.

use base::{FileBlock, errno};
use cache::{Edges, MAX_FILE_BYTES};
use inode::contents;

use super::File;
use crate::contents::MapChange;
use crate::{Error, Result};

/// A range of blocks: start and end.
type BlockRange = (FileBlock, FileBlock);

impl File<'_> {
    /// Allocates unwritten blocks for the holes of a range, so that writes there cannot fail with `ENOSPC`. They read
    /// as zeros. Without `keep_size`, extends the file to the end of the range.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for length 0, `EFBIG`, `ENOSPC`; `EPERM` for an immutable file; damage.
    pub fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        self.expect_mutable()?;
        let end = end_of(offset, length)?;
        self.change_map(offset, end, Edges::Keep, |change| {
            let size = (!keep_size).then(|| change.size().max(end));
            self.preallocate(change, self.touched_blocks(offset, end), size)
        })
    }

    /// Frees the blocks of a range, which then reads as zeros. The size does not change.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); `EPERM` also for an append-only file.
    pub fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.expect_changeable()?;
        let end = end_of(offset, length)?;
        self.change_map(offset, end, Edges::Zero, |change| {
            match self.whole_blocks(offset, end, change.size()) {
                Some((from, to)) => contents::punch(self.map_file(), from, to),
                None => Ok(()),
            }
        })
    }

    /// Makes a range read as zeros, with blocks allocated. Whole blocks become unwritten; only partial ones are
    /// written.
    ///
    /// # Errors
    /// As [`punch_hole`](Self::punch_hole).
    pub fn zero_range(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        self.expect_changeable()?;
        let end = end_of(offset, length)?;
        self.change_map(offset, end, Edges::Zero, |change| {
            if let Some((from, to)) = self.whole_blocks(offset, end, change.size()) {
                contents::zero(self.map_file(), from, to, None)?;
            }
            let size = (!keep_size).then(|| change.size().max(end));
            self.preallocate(change, self.touched_blocks(offset, end), size)
        })
    }

    /// Removes a range of whole blocks from the file: the data behind it moves down.
    ///
    /// # Errors
    /// `EINVAL` if the range is not a multiple of the block size, or reaches the end of the file; as
    /// [`punch_hole`](Self::punch_hole).
    pub fn collapse_range(&self, offset: u64, length: u64) -> Result<()> {
        self.expect_changeable()?;
        let end = end_of(offset, length)?;
        let from = self.expect_aligned(offset, length)?;
        self.change_map(offset, u64::MAX, Edges::Keep, |change| {
            if end >= change.size() {
                let why = "the range reaches the end of the file: truncate it instead";
                return Err(error::Error::Refused { errno: errno::EINVAL, why });
            }
            let count = length >> self.volume.geometry.block_log;
            contents::collapse(self.map_file(), from, count)?;
            change.set_size(change.size() - length);
            Ok(())
        })
    }

    /// Inserts a hole of whole blocks: the data from `offset` on moves up.
    ///
    /// # Errors
    /// `EINVAL` if the range is not a multiple of the block size, or does not begin within the file; `EFBIG`; as
    /// [`punch_hole`](Self::punch_hole).
    pub fn insert_range(&self, offset: u64, length: u64) -> Result<()> {
        self.expect_changeable()?;
        end_of(offset, length)?;
        let from = self.expect_aligned(offset, length)?;
        self.change_map(offset, u64::MAX, Edges::Keep, |change| {
            let refused = |errno, why| Err(error::Error::Refused { errno, why });
            if change.size() > MAX_FILE_BYTES - length {
                return refused(errno::EFBIG, "the file would exceed the maximum file size");
            }
            if offset >= change.size() {
                return refused(errno::EINVAL, "the offset is not within the file: extend it instead");
            }
            let count = length >> self.volume.geometry.block_log;
            contents::insert(self.map_file(), from, count)?;
            change.set_size(change.size() + length);
            Ok(())
        })
    }

    fn change_map(
        &self,
        from: u64,
        to: u64,
        edges: Edges,
        work: impl Fn(&mut MapChange<'_>) -> std::result::Result<(), error::Error>,
    ) -> Result<()> {
        self.volume.retry_on_enospc(|| Ok(self.contents.change_map(from..to, edges, &work)?))?;
        self.after_write()
    }

    fn preallocate(
        &self,
        change: &mut MapChange<'_>,
        range: BlockRange,
        size: Option<u64>,
    ) -> std::result::Result<(), error::Error> {
        contents::preallocate(self.map_file(), range.0, range.1, size)?;
        if let Some(size) = size {
            change.set_size(size);
        }
        Ok(())
    }

    /// Blocks that contain bytes of a range.
    fn touched_blocks(&self, from: u64, to: u64) -> BlockRange {
        let block = u64::from(self.volume.geometry.block_size);
        (FileBlock(from / block), FileBlock(to.div_ceil(block)))
    }

    /// Blocks that are completely within a range, if any. The last block of the file ends at the end of the file.
    fn whole_blocks(&self, from: u64, to: u64, size: u64) -> Option<BlockRange> {
        let block = u64::from(self.volume.geometry.block_size);
        let last = if to >= size { to.div_ceil(block) } else { to / block };
        let range = (FileBlock(from.div_ceil(block)), FileBlock(last));
        (range.0 < range.1).then_some(range)
    }

    /// Returns the first block of a range, which must be a multiple of the block size.
    fn expect_aligned(&self, offset: u64, length: u64) -> Result<FileBlock> {
        let block = u64::from(self.volume.geometry.block_size);
        if offset.is_multiple_of(block) && length.is_multiple_of(block) {
            return Ok(FileBlock(offset / block));
        }
        Err(Error::refused(errno::EINVAL, "the range is not a multiple of the block size"))
    }
}

/// Returns the end of a range, which must not be empty.
pub(super) fn end_of(offset: u64, length: u64) -> Result<u64> {
    if length == 0 {
        return Err(Error::refused(errno::EINVAL, "the range is empty"));
    }
    let end = offset.checked_add(length).filter(|end| *end <= MAX_FILE_BYTES);
    end.ok_or(Error::refused(errno::EFBIG, "the range exceeds the maximum file size"))
}
