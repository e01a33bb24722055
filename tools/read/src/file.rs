//! File contents: data and holes, or bytes at an offset.

use base::{FileBlock, errno};
use format::extent::Extent;
use format::inode::{Dinode, FileType, ForkKind};

use crate::error::{Error, Result};
use crate::extents::ExtentWalk;
use crate::inode::refuse_realtime;
use crate::volume::Volume;

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Data on the device.
    Data {
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Offset on the data device, in bytes.
        device_offset: u64,
    },
    /// A hole or an unwritten extent: reads as zeros.
    Hole {
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
}

/// The segments of a regular file from an offset up to its size, without gaps. Stops after the first error.
///
/// Adjacent extents are not merged; unwritten extents are holes.
pub struct Segments<'v> {
    volume: &'v Volume,
    extents: ExtentWalk<'v>,
    /// The next extent, which begins after `at`.
    pending: Option<Extent>,
    at: u64,
    size: u64,
}

impl<'v> Segments<'v> {
    /// The segments of `inode` from byte `from` on. `EISDIR` or `EINVAL` for what is not a regular file.
    pub fn new(volume: &'v Volume, inode: &Dinode<'_>, from: u64) -> Result<Self> {
        match inode.file_type() {
            Some(FileType::Regular) => {}
            Some(FileType::Directory) => {
                return Err(Error::unfit(errno::EISDIR, format!("inode {} is a directory", inode.ino())));
            }
            _ => {
                return Err(Error::unfit(
                    errno::EINVAL,
                    format!("inode {} is not a regular file", inode.ino()),
                ));
            }
        }
        refuse_realtime(inode)?;
        let block = FileBlock(from >> volume.geometry().block_log);
        let extents = ExtentWalk::new(volume, inode, ForkKind::Data, block)?;
        Ok(Self { volume, extents, pending: None, at: from, size: inode.core.size.get() })
    }

    fn advance(&mut self) -> Result<Option<Segment>> {
        if self.at >= self.size {
            return Ok(None);
        }
        let extent = match self.pending.take() {
            Some(extent) => Some(extent),
            None => self.extents.next().transpose()?,
        };
        let (offset, log) = (self.at, self.volume.geometry().block_log);
        let Some(extent) = extent else {
            self.at = self.size;
            return Ok(Some(Segment::Hole { offset, length: self.size - offset }));
        };
        // 54 bits of block and 16 of shift can exceed 64 bits; such an extent is beyond any size.
        let bytes = |block: FileBlock| block.get().saturating_mul(1 << log);
        let (start, end) = (bytes(extent.offset), bytes(extent.end()).min(self.size));
        if start > offset {
            self.pending = Some(extent);
            self.at = start.min(self.size);
            return Ok(Some(Segment::Hole { offset, length: self.at - offset }));
        }
        self.at = end.max(offset);
        let length = self.at - offset;
        if extent.unwritten {
            return Ok(Some(Segment::Hole { offset, length }));
        }
        // Extents have been verified to be on the volume.
        let device_start = self.volume.geometry().fs_block_offset(extent.start).unwrap_or(0);
        Ok(Some(Segment::Data { offset, length, device_offset: device_start + (offset - start) }))
    }
}

impl Iterator for Segments<'_> {
    type Item = Result<Segment>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.advance().transpose();
        if matches!(step, Some(Err(_))) {
            self.at = self.size;
        }
        step
    }
}

/// Reads bytes of a regular file at an offset like `pread`: returns the number of bytes up to the end of the file.
pub fn read_at(volume: &Volume, inode: &Dinode<'_>, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    for segment in Segments::new(volume, inode, offset)? {
        let rest = buf.get_mut(done..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        done += match segment? {
            Segment::Hole { length, .. } => {
                let part = clip(rest, length);
                part.fill(0);
                part.len()
            }
            Segment::Data { length, device_offset, .. } => {
                let part = clip(rest, length);
                volume.device().read_at(device_offset, part)?;
                part.len()
            }
        };
    }
    Ok(done)
}

/// At most `length` bytes of the start of `buf`.
fn clip(buf: &mut [u8], length: u64) -> &mut [u8] {
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(buf.len());
    buf.split_at_mut(length).0
}
