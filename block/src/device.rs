//! The trait of this layer: a random-access byte device.
//!
//! # Invariants
//! - Offsets and lengths are bytes. A transfer is exact: it moves every byte or returns an error.
//! - The size of a device changes only by [`Device::set_size`] and [`Device::refresh_size`].
//! - Threads share a device without external locking. Transfers that overlap in time and range are atomic per logical
//!   sector at most.
//! - Data of a `write_at` with [`Durability::Buffered`] is visible to reads when it returns, and stable after the next
//!   `flush`; with [`Durability::Fua`] it is stable when it returns.

use std::fmt;
use std::io;
use std::ops::Range;

use crate::aligned::AlignedBuf;
use crate::error::{DeviceError, Operation};

/// When a write must have reached stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Stable after the next [`Device::flush`] that begins after the write returned.
    Buffered,
    /// Forced unit access: this write is stable when the call returns. Earlier writes may not be.
    Fua,
}

/// One read of a batch ([`Device::read_many`]).
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Offset in bytes.
    pub offset: u64,
    /// Buffer to fill.
    pub buf: &'a mut [u8],
}

impl<'a> ReadRequest<'a> {
    /// A request for `buf.len()` bytes at `offset`.
    pub fn new(offset: u64, buf: &'a mut [u8]) -> Self {
        Self { offset, buf }
    }
}

/// One write of a batch ([`Device::write_many`]).
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    /// Offset in bytes.
    pub offset: u64,
    /// Data to write.
    pub buf: &'a [u8],
}

impl<'a> WriteRequest<'a> {
    /// A request for `buf` at `offset`.
    pub fn new(offset: u64, buf: &'a [u8]) -> Self {
        Self { offset, buf }
    }
}

/// Consecutive parts of a batch of writes ([`Device::write_runs`]).
#[derive(Debug, Clone, Copy)]
pub struct WriteRun<'a> {
    /// Offset of the first part in bytes.
    pub offset: u64,
    /// Data to write.
    pub parts: &'a [&'a [u8]],
}

impl WriteRun<'_> {
    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// A random-access byte device. All offsets and lengths are in bytes.
pub trait Device: Send + Sync {
    /// The size in bytes, as of opening or of the last [`set_size`](Self::set_size) or
    /// [`refresh_size`](Self::refresh_size). It need not be a multiple of the sector size.
    fn size(&self) -> u64;

    /// 512 or 4096: the unit of atomic writes and, for direct I/O, of alignment.
    fn logical_sector_size(&self) -> u32;

    /// Whether all writes are refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buf` from `offset`. Neither needs to be aligned.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`] if the range is not within the device; errors of the medium. After an error the
    /// contents of `buf` are unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Writes all of `buf` at `offset`.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`], [`DeviceError::ReadOnly`], [`DeviceError::Unaligned`] (direct I/O only); errors of the
    /// medium. After an error each sector of the range may contain old or new data.
    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError>;

    /// Makes every write stable that returned before this call.
    ///
    /// # Errors
    /// Errors of the medium. Writes since the last successful flush may be lost then; a successful retry does not prove
    /// the contrary.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Updates and returns the size if the medium has become larger (a logical volume, a file).
    ///
    /// # Errors
    /// Errors of the system.
    fn refresh_size(&self) -> Result<u64, DeviceError> {
        Ok(self.size())
    }

    /// Extends a file with zeros, or truncates it. Before truncating, the caller must make sure that its end is unused.
    ///
    /// # Errors
    /// [`DeviceError::Io`] with [`Operation::Resize`] if the medium has a fixed size: a block device, a partition, a
    /// container.
    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        let source = io::Error::new(io::ErrorKind::Unsupported, "only image files can be resized");
        Err(DeviceError::Io {
            device: self.describe().into(),
            operation: Operation::Resize,
            offset: 0,
            length: size,
            source,
        })
    }

    /// Whether a crash leaves a prefix of the writes, in the order in which they returned. Then no flush is needed
    /// between two writes of which the second must not become stable before the first. A write with [`Durability::Fua`]
    /// makes all writes stable that returned before it began.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Fills the buffers of all requests, in any order; the slice keeps the caller's order.
    ///
    /// # Errors
    /// The first error. The contents of all buffers are unspecified then: to find out which request failed, read them
    /// one by one.
    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        reads.iter_mut().try_for_each(|read| self.read_at(read.offset, read.buf))
    }

    /// Makes a range read as zeros, and deallocates it if the medium can. Stable after the next flush, like a buffered
    /// write.
    ///
    /// # Errors
    /// The errors of [`Device::write_at`].
    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        write_zeros(self, offset, length)
    }

    /// A hint that the contents of a range are no longer needed. Returns whether it reads as zeros now; otherwise its
    /// contents are unspecified. A medium that does not support it changes nothing.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`] and [`DeviceError::ReadOnly`]. It is no error if the medium refuses the hint.
    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        check_write(self, offset, length)?;
        Ok(false)
    }

    /// Writes all requests, in any order, with [`Durability::Buffered`]. Requests must not overlap.
    ///
    /// # Errors
    /// The first error. Any of the requests may have been written then, completely or in part: to find out which one
    /// failed, write them one by one.
    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        write_each(self, writes)
    }

    /// Writes consecutive parts from `offset` on, with one operation if the medium can, with [`Durability::Buffered`].
    ///
    /// # Errors
    /// The errors of [`Device::write_at`]; some parts may have been written then.
    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        write_parts(self, offset, parts)
    }

    /// Writes all runs, in any order, several at once if the medium gains by that, with [`Durability::Buffered`], and
    /// starts writeback of long ones. Runs must not overlap. Returns the failed ones by their index, with the errors of
    /// [`Device::write_vectored`].
    fn write_runs(&self, runs: &[WriteRun<'_>]) -> Vec<(usize, DeviceError)> {
        write_each_run(self, runs.iter().enumerate())
    }

    /// The next range at or behind an offset that may contain something else than zeros; `None` if all behind it reads
    /// as zeros. It ends at a hole, or earlier.
    ///
    /// # Errors
    /// Errors of the medium.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DeviceError> {
        let size = self.size();
        Ok((offset < size).then_some(offset..size))
    }

    /// A hint to start writeback of buffered writes in a range, so that a later flush has less to do. Does not wait.
    fn start_writeback(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// The path and the containers, for messages: `disk.qcow2 (qcow2), partition 2`.
    fn describe(&self) -> String;
}

/// So that types that contain a device can derive `Debug`.
impl fmt::Debug for dyn Device + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {} bytes)", self.describe(), self.size())
    }
}

/// Bytes of zeros per write.
const ZEROS: usize = 1 << 20;

/// Writes zeros: for devices without a better way.
pub(crate) fn write_zeros<D: Device + ?Sized>(
    device: &D,
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    check_write(device, offset, length)?;
    let zeros = AlignedBuf::zeroed(length.min(ZEROS as u64) as usize);
    let mut done = 0;
    while done < length {
        // At most `ZEROS`, the length of the buffer.
        let piece = zeros.get(..(length - done).min(ZEROS as u64) as usize).unwrap_or(&zeros);
        device.write_at(offset + done, piece, Durability::Buffered)?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// [`Device::write_many`] with single writes.
pub(crate) fn write_each<D: Device + ?Sized>(
    device: &D,
    writes: &[WriteRequest<'_>],
) -> Result<(), DeviceError> {
    writes.iter().try_for_each(|write| device.write_at(write.offset, write.buf, Durability::Buffered))
}

/// [`Device::write_vectored`] with single writes.
pub(crate) fn write_parts<D: Device + ?Sized>(
    device: &D,
    mut offset: u64,
    parts: &[&[u8]],
) -> Result<(), DeviceError> {
    parts.iter().try_for_each(|part| {
        device.write_at(offset, part, Durability::Buffered)?;
        offset = offset.saturating_add(part.len() as u64);
        Ok(())
    })
}

/// Writeback of longer writes is started at once, so that the next flush takes less time.
const WRITEBACK_BYTES: usize = 256 << 10;

/// [`Device::write_runs`] with one write after the other.
pub(crate) fn write_each_run<'r, 'a: 'r, D: Device + ?Sized>(
    device: &D,
    runs: impl Iterator<Item = (usize, &'r WriteRun<'a>)>,
) -> Vec<(usize, DeviceError)> {
    let mut failed = Vec::new();
    for (index, run) in runs {
        match device.write_vectored(run.offset, run.parts) {
            Ok(()) if run.length() >= WRITEBACK_BYTES => {
                device.start_writeback(run.offset, run.length() as u64);
            }
            Ok(()) => {}
            Err(error) => failed.push((index, error)),
        }
    }
    failed
}

/// Refuses to change a range that is not within `device`, or a device that is read-only: for implementations.
///
/// # Errors
/// [`DeviceError::ReadOnly`], [`DeviceError::PastEnd`].
pub fn check_write<D: Device + ?Sized>(device: &D, offset: u64, length: u64) -> Result<(), DeviceError> {
    if device.is_read_only() {
        return Err(DeviceError::ReadOnly { device: device.describe().into(), offset, length });
    }
    check_long_range(device, Operation::Write, offset, length)
}

/// Refuses a transfer that is not within `device`: for implementations.
///
/// # Errors
/// [`DeviceError::PastEnd`].
pub fn check_range<D: Device + ?Sized>(
    device: &D,
    operation: Operation,
    offset: u64,
    length: usize,
) -> Result<(), DeviceError> {
    check_long_range(device, operation, offset, length as u64)
}

fn check_long_range<D: Device + ?Sized>(
    device: &D,
    operation: Operation,
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    let size = device.size();
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::PastEnd { device: device.describe().into(), operation, offset, length, size }),
    }
}
