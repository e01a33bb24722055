//! What `fallocate` does.

use base::{FileBlock, errno};
use cache::{Edges, MAX_FILE_BYTES};
use inode::contents;

use super::File;
use crate::contents::Change;
use crate::{Error, Result};

/// A range of whole blocks.
type Blocks = (FileBlock, FileBlock);

impl File<'_> {
    /// Reserves blocks for a range, so that writing there cannot run out of space. They read as zeros until something
    /// is written. Unless `keep_size`, the file is at least as long as the range reaches.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for no length, `EFBIG`, `ENOSPC`; `EPERM` where the file is immutable; damage.
    pub fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        self.expect_mutable()?;
        let end = end_of(offset, length)?;
        self.with_map(offset, end, Edges::Keep, |change| {
            let size = (!keep_size).then(|| change.size().max(end));
            self.fill(change, self.outer(offset, end), size)
        })
    }

    /// Takes the blocks of a range away, which then reads as zeros. The size stays.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); `EPERM` also where the file may only be appended to.
    pub fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.expect_changeable()?;
        let end = end_of(offset, length)?;
        self.with_map(offset, end, Edges::Zero, |change| match self.inner(offset, end, change.size()) {
            Some((from, to)) => contents::punch(self.shared(), self.groups(), self.inode(), from, to),
            None => Ok(()),
        })
    }

    /// Makes a range read as zeros and keeps blocks for it, without writing them where they are whole.
    ///
    /// # Errors
    /// As [`punch_hole`](Self::punch_hole).
    pub fn zero_range(&self, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        self.expect_changeable()?;
        let end = end_of(offset, length)?;
        self.with_map(offset, end, Edges::Zero, |change| {
            if let Some(whole) = self.inner(offset, end, change.size()) {
                contents::zero(self.shared(), self.groups(), self.inode(), whole, None)?;
            }
            let size = (!keep_size).then(|| change.size().max(end));
            self.fill(change, self.outer(offset, end), size)
        })
    }

    /// Takes a range of whole blocks out of the file: what is behind it moves there.
    ///
    /// # Errors
    /// `EINVAL` where the range is not one of whole blocks, or reaches to the end of the file; as
    /// [`punch_hole`](Self::punch_hole).
    pub fn collapse_range(&self, offset: u64, length: u64) -> Result<()> {
        self.expect_changeable()?;
        let end = end_of(offset, length)?;
        let from = self.whole(offset, length)?;
        self.with_map(offset, u64::MAX, Edges::Keep, |change| {
            if end >= change.size() {
                let why = "the range reaches to the end of the file: truncate it instead";
                return Err(error::Error::Refused { errno: errno::EINVAL, why });
            }
            let count = length >> self.volume.geometry.block_log;
            contents::collapse(self.shared(), self.groups(), self.inode(), from, count)?;
            change.set_size(change.size() - length);
            Ok(())
        })
    }

    /// Puts a hole of whole blocks into the file: what is behind `offset` moves up.
    ///
    /// # Errors
    /// `EINVAL` where the range is not one of whole blocks, or does not begin within the file; `EFBIG`; as
    /// [`punch_hole`](Self::punch_hole).
    pub fn insert_range(&self, offset: u64, length: u64) -> Result<()> {
        self.expect_changeable()?;
        end_of(offset, length)?;
        let from = self.whole(offset, length)?;
        self.with_map(offset, u64::MAX, Edges::Keep, |change| {
            let refused = |errno, why| Err(error::Error::Refused { errno, why });
            if change.size() > MAX_FILE_BYTES - length {
                return refused(errno::EFBIG, "the file would be longer than a file can be");
            }
            if offset >= change.size() {
                return refused(errno::EINVAL, "the place is not within the file: extend it instead");
            }
            let count = length >> self.volume.geometry.block_log;
            contents::insert(self.shared(), self.groups(), self.inode(), from, count)?;
            change.set_size(change.size() + length);
            Ok(())
        })
    }

    fn with_map(
        &self,
        from: u64,
        to: u64,
        edges: Edges,
        work: impl Fn(&mut Change<'_>) -> std::result::Result<(), error::Error>,
    ) -> Result<()> {
        self.volume.retry_on_enospc(|| Ok(self.contents.change_map(from..to, edges, &work)?))?;
        self.written()
    }

    fn fill(
        &self,
        change: &mut Change<'_>,
        range: Blocks,
        size: Option<u64>,
    ) -> std::result::Result<(), error::Error> {
        contents::preallocate(self.shared(), self.groups(), self.inode(), range, size)?;
        if let Some(size) = size {
            change.set_size(size);
        }
        Ok(())
    }

    /// The blocks that a range touches.
    fn outer(&self, from: u64, to: u64) -> Blocks {
        let block = u64::from(self.volume.geometry.block_size);
        (FileBlock(from / block), FileBlock(to.div_ceil(block)))
    }

    /// The blocks that a range has whole, if any. The end of the file ends a block, too.
    fn inner(&self, from: u64, to: u64, size: u64) -> Option<Blocks> {
        let block = u64::from(self.volume.geometry.block_size);
        let last = if to >= size { to.div_ceil(block) } else { to / block };
        let range = (FileBlock(from.div_ceil(block)), FileBlock(last));
        (range.0 < range.1).then_some(range)
    }

    /// The first block of a range that must be one of whole blocks.
    fn whole(&self, offset: u64, length: u64) -> Result<FileBlock> {
        let block = u64::from(self.volume.geometry.block_size);
        if offset.is_multiple_of(block) && length.is_multiple_of(block) {
            return Ok(FileBlock(offset / block));
        }
        Err(Error::refused(errno::EINVAL, "the range is not one of whole blocks"))
    }
}

/// The end of a range that is not empty.
pub(super) fn end_of(offset: u64, length: u64) -> Result<u64> {
    if length == 0 {
        return Err(Error::refused(errno::EINVAL, "the range is empty"));
    }
    let end = offset.checked_add(length).filter(|end| *end <= MAX_FILE_BYTES);
    end.ok_or(Error::refused(errno::EFBIG, "the range reaches further than a file can"))
}
