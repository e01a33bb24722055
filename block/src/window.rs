//! A byte range of another device: a partition, or an image at an offset.
//!
//! # Invariants
//! - The range is within the base device, so that access through the window cannot leave it.
//! - Errors of the base device contain its own name and offsets.

use std::sync::Arc;

use crate::device::{Device, Durability, ReadRequest, WriteRun, check_range, check_write, write_each_run};
use crate::error::{DeviceError, Operation};

/// A byte range of another device.
pub struct WindowDevice {
    base: Arc<dyn Device>,
    start: u64,
    length: u64,
    label: String,
}

impl WindowDevice {
    /// `length` bytes of `base` from `start` on. `label` names the window in messages: `partition 2`.
    ///
    /// # Errors
    /// [`DeviceError::PastEnd`] if the range is not within `base`.
    pub fn new(
        base: Arc<dyn Device>,
        start: u64,
        length: u64,
        label: impl Into<String>,
    ) -> Result<Self, DeviceError> {
        let (label, size) = (label.into(), base.size());
        if start.checked_add(length).is_none_or(|end| end > size) {
            let device = format!("{}, {label}", base.describe()).into();
            return Err(DeviceError::PastEnd {
                device,
                operation: Operation::Read,
                offset: start,
                length,
                size,
            });
        }
        Ok(Self { base, start, length, label })
    }
}

impl Device for WindowDevice {
    crate::forward!(base: logical_sector_size, is_read_only, keeps_order, flush);

    fn size(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, buf.len())?;
        self.base.read_at(self.start + offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, buf.len())?;
        self.base.write_at(self.start + offset, buf, durability)
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        for read in reads.iter() {
            check_range(self, Operation::Read, read.offset, read.buf.len())?;
        }
        let mut moved: Vec<_> =
            reads.iter_mut().map(|r| ReadRequest::new(self.start + r.offset, &mut *r.buf)).collect();
        self.base.read_many(&mut moved)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        check_write(self, offset, length)?;
        self.base.zero(self.start + offset, length)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        check_write(self, offset, length)?;
        self.base.discard(self.start + offset, length)
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, parts.iter().map(|part| part.len()).sum())?;
        self.base.write_vectored(self.start + offset, parts)
    }

    fn write_runs(&self, runs: &[WriteRun<'_>]) -> Vec<(usize, DeviceError)> {
        let is_within =
            |run: &WriteRun<'_>| check_range(self, Operation::Write, run.offset, run.length()).is_ok();
        if !runs.iter().all(is_within) {
            return write_each_run(self, runs.iter().enumerate());
        }
        let moved = runs.iter().map(|run| WriteRun { offset: self.start + run.offset, ..*run });
        self.base.write_runs(&moved.collect::<Vec<_>>())
    }

    fn start_writeback(&self, offset: u64, length: u64) {
        self.base.start_writeback(self.start.saturating_add(offset), length);
    }

    fn describe(&self) -> String {
        format!("{}, {}", self.base.describe(), self.label)
    }
}

impl std::fmt::Debug for WindowDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WindowDevice")
            .field("device", &self.describe())
            .field("start", &self.start)
            .field("length", &self.length)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    #[test]
    fn accesses_only_its_range() {
        let bytes: Vec<u8> = (0..=255).collect();
        let base: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let window = WindowDevice::new(base.clone(), 16, 32, "partition 1").unwrap();
        let mut got = [0; 32];
        window.read_at(0, &mut got).unwrap();
        assert_eq!(got, bytes[16..48]);
        assert!(window.write_vectored(20, &[&[1; 8], &[2; 8]]).is_err());
        window.write_vectored(16, &[&bytes[32..40], &bytes[40..48]]).unwrap();
        let (mut a, mut b) = ([0; 2], [0; 3]);
        window.read_many(&mut [ReadRequest::new(30, &mut a), ReadRequest::new(0, &mut b)]).unwrap();
        assert_eq!((a, b), ([46, 47], [16, 17, 18]));
        window.write_at(31, &[0xee], Durability::Buffered).unwrap();
        assert!(window.write_at(31, &[0; 2], Durability::Buffered).is_err());
        assert!(window.read_at(32, &mut [0]).is_err());
        assert!(window.read_many(&mut [ReadRequest::new(u64::MAX, &mut a)]).is_err());
        let mut edge = [0; 3];
        base.read_at(46, &mut edge).unwrap();
        assert_eq!(edge, [46, 0xee, 48]);
    }

    #[test]
    fn must_be_within_the_device() {
        let base: Arc<dyn Device> = Arc::new(MemoryDevice::new(100));
        assert!(WindowDevice::new(base.clone(), 90, 11, "w").is_err());
        assert!(WindowDevice::new(base.clone(), u64::MAX, 2, "w").is_err());
        assert_eq!(WindowDevice::new(base, 100, 0, "w").unwrap().size(), 0);
    }
}
