//! A device that writes its first bytes last, so that it is not recognized before it is complete.
//!
//! # Invariants
//! - Until [`HeaderLastDevice::finish`] the base device begins with zeros: it contains neither a file system nor a
//!   partition table, whatever has been written to it.
//!
//! # Locking
//! One mutex for the first bytes, held while they are copied.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::{Device, Durability, WriteRequest, write_each, write_zeros};
use crate::error::DeviceError;

/// Bytes that are written last: more than the signature of any file system or partition table.
const HEADER_BYTES: usize = 4096;

fn empty_header(base: &dyn Device) -> Vec<u8> {
    vec![0; HEADER_BYTES.min(usize::try_from(base.size()).unwrap_or(HEADER_BYTES))]
}

/// A device that keeps its first bytes in memory until [`finish`](Self::finish). It need not survive a power cut
/// before, and flushes are ignored.
pub struct HeaderLastDevice {
    base: Arc<dyn Device>,
    header: Mutex<Vec<u8>>,
}

impl HeaderLastDevice {
    /// Whether a device begins as one that was not [finished](Self::finish).
    ///
    /// # Errors
    /// Errors of the device.
    pub fn is_unfinished(base: &dyn Device) -> Result<bool, DeviceError> {
        let mut header = empty_header(base);
        base.read_at(0, &mut header)?;
        Ok(header.iter().all(|byte| *byte == 0))
    }

    /// Overwrites the first bytes of `base` with zeros.
    ///
    /// # Errors
    /// Errors of `base`.
    pub fn new(base: Arc<dyn Device>) -> Result<Self, DeviceError> {
        let header = empty_header(&*base);
        base.write_at(0, &header, Durability::Buffered)?;
        base.flush()?;
        Ok(Self { base, header: Mutex::new(header) })
    }

    /// Writes the first bytes, and makes everything stable.
    ///
    /// # Errors
    /// Errors of `base`, which is not usable then.
    pub fn finish(&self) -> Result<(), DeviceError> {
        self.base.flush()?;
        self.base.write_at(0, &self.header(), Durability::Buffered)?;
        self.base.flush()
    }

    fn header(&self) -> MutexGuard<'_, Vec<u8>> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of a range that is in memory.
    fn header_range(offset: u64, length: usize, header: &[u8]) -> Range<usize> {
        let count = (header.len() as u64).saturating_sub(offset).min(length as u64) as usize;
        let start = if count == 0 { 0 } else { offset as usize };
        start..start + count
    }
}

impl Device for HeaderLastDevice {
    crate::forward!(base: size, logical_sector_size, is_read_only, set_size, describe);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read_at(offset, buf)?;
        let header = self.header();
        let range = Self::header_range(offset, buf.len(), &header);
        if let (Some(target), Some(source)) = (buf.get_mut(..range.len()), header.get(range)) {
            target.copy_from_slice(source);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let mut header = self.header();
        let range = Self::header_range(offset, buf.len(), &header);
        let (in_memory, rest) = buf.split_at(range.len());
        if let Some(target) = header.get_mut(range) {
            target.copy_from_slice(in_memory);
        }
        drop(header);
        match rest.is_empty() {
            true => Ok(()),
            false => self.base.write_at(offset + in_memory.len() as u64, rest, durability),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let in_memory = (HEADER_BYTES as u64).saturating_sub(offset).min(length);
        write_zeros(self, offset, in_memory)?;
        match length - in_memory {
            0 => Ok(()),
            rest => self.base.zero(offset + in_memory, rest),
        }
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DeviceError> {
        match offset < HEADER_BYTES as u64 {
            true => Ok(Some(offset..HEADER_BYTES as u64)),
            false => self.base.next_data(offset),
        }
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        match writes.iter().all(|write| write.offset >= HEADER_BYTES as u64) {
            true => self.base.write_many(writes),
            false => write_each(self, writes),
        }
    }
}

impl fmt::Debug for HeaderLastDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderLastDevice({})", self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn the_header_is_written_last() {
        let base = Arc::new(MemoryDevice::new(64 << 10));
        base.write_at(0, &[7; 8192], Durability::Buffered).unwrap();
        let device = HeaderLastDevice::new(base.clone()).unwrap();
        let bytes: Vec<u8> = (0..5000).map(|n| (n % 251) as u8 + 1).collect();
        device.write_at(100, &bytes, Durability::Fua).unwrap();
        device.write_at(6000, &bytes, Durability::Buffered).unwrap();
        let requests = [WriteRequest::new(4000, &bytes[..200]), WriteRequest::new(8, &bytes[..8])];
        device.write_many(&requests).unwrap();
        device.zero(4090, 20).unwrap();
        assert_eq!(device.next_data(5000).unwrap(), Some(5000..64 << 10));
        device.flush().unwrap();
        let (mut seen, mut below) = (vec![0; 12_000], vec![0; 12_000]);
        device.read_at(0, &mut seen).unwrap();
        base.read_at(0, &mut below).unwrap();
        assert!(below[..4096].iter().all(|byte| *byte == 0) && below[4110..] == seen[4110..]);
        assert_eq!((&seen[8..16], &seen[100..108]), (&bytes[..8], &bytes[..8]));
        assert!(seen[4090..4110].iter().all(|byte| *byte == 0) && seen[4110..4200] == bytes[110..200]);
        device.finish().unwrap();
        base.read_at(0, &mut below).unwrap();
        assert!(below == seen);
    }
}
