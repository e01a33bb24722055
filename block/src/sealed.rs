//! A device that is nothing until it is finished.
//!
//! # Invariants
//! - Until [`SealedDevice::seal`] has returned, the medium begins with zeros: nobody finds a file system or a partition
//!   table on it, whatever else is written already.
//!
//! # Locking
//! One mutex around the first bytes, held for a copy.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::{Device, Durability, WriteRequest, write_zeros};
use crate::error::DeviceError;

/// So many bytes at the beginning of a device are written last: more than any signature of a file system or of a
/// partition table needs.
const SEAL: usize = 4096;

/// A device that holds nothing until it is sealed: its first bytes are kept in memory, and on the medium they are
/// zeros. Nothing of it needs to survive a power cut before, and no flush reaches the medium.
pub struct SealedDevice {
    base: Arc<dyn Device>,
    first: Mutex<Vec<u8>>,
}

impl SealedDevice {
    /// Takes what `base` holds away.
    ///
    /// # Errors
    /// What it reports.
    pub fn new(base: Arc<dyn Device>) -> Result<Self, DeviceError> {
        let first = vec![0; SEAL.min(usize::try_from(base.size()).unwrap_or(SEAL))];
        base.write_at(0, &first, Durability::Buffered)?;
        base.flush()?;
        Ok(Self { base, first: Mutex::new(first) })
    }

    /// Makes it what was written to it. It is stable then.
    ///
    /// # Errors
    /// What the device reports: it holds nothing then.
    pub fn seal(&self) -> Result<(), DeviceError> {
        self.base.flush()?;
        self.base.write_at(0, &self.first(), Durability::Buffered)?;
        self.base.flush()
    }

    fn first(&self) -> MutexGuard<'_, Vec<u8>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of so many bytes from an offset on are kept in memory.
    fn kept(offset: u64, length: usize, first: &[u8]) -> usize {
        (first.len() as u64).saturating_sub(offset).min(length as u64) as usize
    }
}

impl Device for SealedDevice {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn logical_sector_size(&self) -> u32 {
        self.base.logical_sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read_at(offset, buf)?;
        let first = self.first();
        let kept = Self::kept(offset, buf.len(), &first);
        if let (Some(to), Some(from)) =
            (buf.get_mut(..kept), first.get(offset as usize..offset as usize + kept))
        {
            to.copy_from_slice(from);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        let mut first = self.first();
        let kept = Self::kept(offset, buf.len(), &first);
        let (now, later) = buf.split_at(kept);
        if kept > 0
            && let Some(to) = first.get_mut(offset as usize..offset as usize + kept)
        {
            to.copy_from_slice(now);
        }
        drop(first);
        match later.is_empty() {
            true => Ok(()),
            false => self.base.write_at(offset + kept as u64, later, how),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        match offset >= SEAL as u64 {
            true => self.base.zero(offset, length),
            false => write_zeros(self, offset, length),
        }
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        match writes.iter().all(|write| write.offset >= SEAL as u64) {
            true => self.base.write_many(writes),
            false => writes
                .iter()
                .try_for_each(|write| self.write_at(write.offset, write.buf, Durability::Buffered)),
        }
    }

    fn describe(&self) -> String {
        self.base.describe()
    }
}

impl fmt::Debug for SealedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedDevice({})", self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn what_it_holds_is_found_when_it_is_sealed() {
        let base = Arc::new(MemoryDevice::new(64 << 10));
        base.write_at(0, &[7; 8192], Durability::Buffered).unwrap();
        let sealed = SealedDevice::new(base.clone()).unwrap();
        let bytes: Vec<u8> = (0..5000).map(|n| (n % 251) as u8 + 1).collect();
        sealed.write_at(100, &bytes, Durability::Fua).unwrap();
        sealed.write_at(6000, &bytes, Durability::Buffered).unwrap();
        let requests = [WriteRequest::new(4000, &bytes[..200]), WriteRequest::new(8, &bytes[..8])];
        sealed.write_many(&requests).unwrap();
        sealed.zero(4090, 20).unwrap();
        sealed.flush().unwrap();
        let (mut seen, mut below) = (vec![0; 12_000], vec![0; 12_000]);
        sealed.read_at(0, &mut seen).unwrap();
        base.read_at(0, &mut below).unwrap();
        assert!(below[..4096].iter().all(|byte| *byte == 0) && below[4110..] == seen[4110..]);
        assert_eq!((&seen[8..16], &seen[100..108]), (&bytes[..8], &bytes[..8]));
        assert!(seen[4090..4110].iter().all(|byte| *byte == 0) && seen[4110..4200] == bytes[110..200]);
        sealed.seal().unwrap();
        base.read_at(0, &mut below).unwrap();
        assert!(below == seen);
    }
}
