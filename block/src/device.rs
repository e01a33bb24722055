//! The one trait of this layer: a random-access byte device.
//!
//! # Invariants
//! - Offsets and lengths are bytes. A transfer is exact: it moves every byte or returns an error.
//! - The size of a device changes by [`Device::set_size`] and [`Device::look_again`] alone.
//! - Implementations are shared by threads without outside locking. Transfers that overlap in time and
//!   range are atomic by logical sector at most.
//! - What `write_at` acknowledged as [`Durability::Buffered`] is visible to later reads at once and
//!   stable after the next `flush`; as [`Durability::Fua`] it is stable on return.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::aligned::AlignedBuf;
use crate::error::{DeviceError, Operation};

/// When a write must have reached stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Stable after the next [`Device::flush`] that begins after the write returned.
    Buffered,
    /// Forced unit access: this write is stable when the call returns. It says nothing of earlier writes.
    Fua,
}

/// One read of a batch given to [`Device::read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where to read, in bytes from the start of the device.
    pub offset: u64,
    /// Filled wholly.
    pub buf: &'a mut [u8],
}

impl<'a> ReadRequest<'a> {
    /// A request for `buf.len()` bytes at `offset`.
    pub fn new(offset: u64, buf: &'a mut [u8]) -> Self {
        Self { offset, buf }
    }
}

/// One write of a batch given to [`Device::write_many`].
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    /// Where to write, in bytes from the start of the device.
    pub offset: u64,
    /// Written wholly.
    pub buf: &'a [u8],
}

impl<'a> WriteRequest<'a> {
    /// A request for `buf` at `offset`.
    pub fn new(offset: u64, buf: &'a [u8]) -> Self {
        Self { offset, buf }
    }
}

/// A random-access byte device. All offsets and lengths are in bytes.
pub trait Device: Send + Sync {
    /// The size in bytes, as it was opened or last [set](Self::set_size). It need not be a multiple of the sector size.
    fn size(&self) -> u64;

    /// 512 or 4096: the unit of atomic writes and, for direct I/O, of alignment.
    fn logical_sector_size(&self) -> u32;

    /// Whether every write will be refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buf` from `offset`. No alignment is asked of the caller.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`] where the range does not lie within the device, and what the medium reports.
    /// After an error the contents of `buf` are unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Writes all of `buf` at `offset`, stable as `how` asks.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`], [`DeviceError::ReadOnly`], [`DeviceError::Unaligned`] (direct I/O only) and
    /// what the medium reports. After an error each sector of the range may hold old or new bytes.
    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError>;

    /// Makes every write that returned before this call stable.
    ///
    /// # Errors
    /// What the medium reports. Writes since the last good flush may then be lost: a retry proves nothing.
    fn flush(&self) -> Result<(), DeviceError>;

    /// The size that the medium has now, where it became larger by other hands (a volume of LVM, a file): from then on
    /// it is this device's.
    ///
    /// # Errors
    /// What the system reports.
    fn look_again(&self) -> Result<u64, DeviceError> {
        Ok(self.size())
    }

    /// Makes the device longer, by zeros, or shorter: a file. Whoever makes it shorter knows that nobody uses its end.
    ///
    /// # Errors
    /// [`DeviceError::Io`] with [`Operation::Resize`], where the medium has the size that it has: a block device, a
    /// partition, a container.
    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        let source = io::Error::new(io::ErrorKind::Unsupported, "only that of an image file can");
        Err(DeviceError::Io {
            device: self.describe().into(),
            what: Operation::Resize,
            offset: 0,
            length: size,
            source,
        })
    }

    /// Fills every request, in whatever order suits the device; the slice keeps the caller's order.
    ///
    /// # Errors
    /// The first error met. The contents of every buffer are then unspecified: a caller that must know
    /// which request failed reads them again one by one.
    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        reads.iter_mut().try_for_each(|read| self.read_at(read.offset, read.buf))
    }

    /// Makes a range read as zeros, giving its space back where the medium can. Stable after the next flush, as a
    /// buffered write.
    ///
    /// # Errors
    /// As [`Device::write_at`].
    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        write_zeros(self, offset, length)
    }

    /// Tells that nobody wants the contents of a range any more. Returns whether it now reads as zeros; where it does
    /// not, its contents are unspecified. A medium that cannot use the hint leaves everything as it is.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`] and [`DeviceError::ReadOnly`]; that the medium refuses the hint is no error.
    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        refuse_change(self, offset, length)?;
        Ok(false)
    }

    /// Writes every request, in whatever order suits the device, as [`Durability::Buffered`]. Requests do not overlap.
    ///
    /// # Errors
    /// The first error met. Any of the requests may then have been written, wholly or in part: a caller that must know
    /// which one failed writes them again one by one.
    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        writes.iter().try_for_each(|write| self.write_at(write.offset, write.buf, Durability::Buffered))
    }

    /// Writes parts that follow each other from `offset` on, with one operation where the medium can, as
    /// [`Durability::Buffered`].
    ///
    /// # Errors
    /// As [`Device::write_at`]; parts may then have been written.
    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let mut at = offset;
        parts.iter().try_for_each(|part| {
            self.write_at(at, part, Durability::Buffered)?;
            at = at.saturating_add(part.len() as u64);
            Ok(())
        })
    }

    /// A hint: what was written to a range as [`Durability::Buffered`] is to be on its way to the medium from now on,
    /// so that a later flush finds less to do. Waits for nothing.
    fn start_writing(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// The path and the chain of containers, for messages: `disk.qcow2 (qcow2), partition 2`.
    fn describe(&self) -> String;
}

/// So that whatever holds a device can derive `Debug`.
impl fmt::Debug for dyn Device + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {} bytes)", self.describe(), self.size())
    }
}

/// Zeros that are written at once.
const ZEROS: usize = 1 << 20;

/// Writes zeros, for devices that know nothing better.
pub(crate) fn write_zeros<D: Device + ?Sized>(
    device: &D,
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    refuse_change(device, offset, length)?;
    let zeros = AlignedBuf::zeroed(length.min(ZEROS as u64) as usize);
    let mut done = 0;
    while done < length {
        // At most `ZEROS`, as the buffer is.
        let piece = zeros.get(..(length - done).min(ZEROS as u64) as usize).unwrap_or(&zeros);
        device.write_at(offset + done, piece, Durability::Buffered)?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// Refuses to change a range that does not lie within `device`, or any of one that is read-only.
pub(crate) fn refuse_change<D: Device + ?Sized>(
    device: &D,
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    if device.is_read_only() {
        return Err(DeviceError::ReadOnly { device: device.describe().into(), offset, length });
    }
    check_long_range(device, Operation::Write, offset, length)
}

/// Refuses a transfer that does not lie within `device`.
pub(crate) fn check_range<D: Device + ?Sized>(
    device: &D,
    what: Operation,
    offset: u64,
    length: usize,
) -> Result<(), DeviceError> {
    check_long_range(device, what, offset, length as u64)
}

fn check_long_range<D: Device + ?Sized>(
    device: &D,
    what: Operation,
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    let size = device.size();
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::PastEnd { device: device.describe().into(), what, offset, length, size }),
    }
}

macro_rules! forward_device {
    ($(#[$meta:meta])* $type:ty) => {
        $(#[$meta])*
        impl<T: Device + ?Sized> Device for $type {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn logical_sector_size(&self) -> u32 {
                (**self).logical_sector_size()
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
                (**self).read_at(offset, buf)
            }
            fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
                (**self).write_at(offset, buf, how)
            }
            fn flush(&self) -> Result<(), DeviceError> {
                (**self).flush()
            }
            fn look_again(&self) -> Result<u64, DeviceError> {
                (**self).look_again()
            }
            fn set_size(&self, size: u64) -> Result<(), DeviceError> {
                (**self).set_size(size)
            }
            fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
                (**self).read_many(reads)
            }
            fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
                (**self).zero(offset, length)
            }
            fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
                (**self).discard(offset, length)
            }
            fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
                (**self).write_many(writes)
            }
            fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
                (**self).write_vectored(offset, parts)
            }
            fn start_writing(&self, offset: u64, length: u64) {
                (**self).start_writing(offset, length);
            }
            fn describe(&self) -> String {
                (**self).describe()
            }
        }
    };
}

forward_device!(Arc<T>);
forward_device!(&T);
forward_device!(Box<T>);
