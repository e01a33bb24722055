//! A device that counts what is read and written.
//!
//! # Invariants
//! Counters are per CPU: threads on different CPUs write to no common cache line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::percpu::{self, PerCpu};

use crate::device::{Device, Durability, ReadRequest, WriteRequest, WriteRun};
use crate::error::DeviceError;

/// What was read from a device and written to it. Failed requests count, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Read requests.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Write requests; of a batch, each run of adjacent parts is one.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Flushes, and writes with [`Durability::Fua`].
    pub flushes: u64,
}

/// The counters of one CPU.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
}

/// A device that counts what is read and written. Otherwise it is its base device.
#[derive(Debug)]
pub struct CountedDevice {
    base: Arc<dyn Device>,
    counters: PerCpu<Counters>,
}

impl CountedDevice {
    /// Counts the use of `base` through this device.
    pub fn new(base: Arc<dyn Device>) -> Self {
        Self { base, counters: PerCpu::new(percpu::available(), |_| Counters::default()) }
    }

    /// What was counted so far: not exact while threads use the device.
    pub fn counts(&self) -> DeviceCounts {
        let sum = |part: fn(&Counters) -> &AtomicU64| {
            self.counters.iter().map(|counters| part(counters).load(Relaxed)).sum()
        };
        DeviceCounts {
            reads: sum(|counters| &counters.reads),
            read_bytes: sum(|counters| &counters.read_bytes),
            writes: sum(|counters| &counters.writes),
            written_bytes: sum(|counters| &counters.written_bytes),
            flushes: sum(|counters| &counters.flushes),
        }
    }

    fn local(&self) -> &Counters {
        self.counters.local().1
    }

    fn count_reads(&self, requests: usize, bytes: usize) {
        let counters = self.local();
        counters.reads.fetch_add(requests as u64, Relaxed);
        counters.read_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn count_writes(&self, requests: usize, bytes: usize) {
        let counters = self.local();
        counters.writes.fetch_add(requests as u64, Relaxed);
        counters.written_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn count_flush(&self) {
        self.local().flushes.fetch_add(1, Relaxed);
    }
}

impl Device for CountedDevice {
    crate::forward!(base: size, logical_sector_size, is_read_only, keeps_order, refresh_size, set_size);
    crate::forward!(base: zero, discard, next_data, start_writeback, describe);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.count_reads(1, buf.len());
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.count_writes(1, buf.len());
        if durability == Durability::Fua {
            self.count_flush();
        }
        self.base.write_at(offset, buf, durability)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.count_flush();
        self.base.flush()
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.count_reads(reads.len(), reads.iter().map(|read| read.buf.len()).sum());
        self.base.read_many(reads)
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.count_writes(writes.len(), writes.iter().map(|write| write.buf.len()).sum());
        self.base.write_many(writes)
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.count_writes(1, parts.iter().map(|part| part.len()).sum());
        self.base.write_vectored(offset, parts)
    }

    fn write_runs(&self, runs: &[WriteRun<'_>]) -> Vec<(usize, DeviceError)> {
        self.count_writes(runs.len(), runs.iter().map(WriteRun::length).sum());
        self.base.write_runs(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    #[test]
    fn requests_of_all_kinds_are_counted() {
        let device = CountedDevice::new(Arc::new(MemoryDevice::new(1 << 20)));
        device.write_at(0, &[1; 10], Durability::Buffered).unwrap();
        device.write_at(0, &[1; 10], Durability::Fua).unwrap();
        device.write_vectored(100, &[&[2; 8], &[3; 8]]).unwrap();
        device.write_many(&[WriteRequest::new(200, &[4; 4]), WriteRequest::new(300, &[4; 4])]).unwrap();
        assert!(device.write_runs(&[WriteRun { offset: 400, parts: &[&[5; 5], &[6; 5]] }]).is_empty());
        device.flush().unwrap();
        let (mut a, mut b) = ([0; 3], [0; 4]);
        device.read_at(100, &mut a).unwrap();
        device.read_many(&mut [ReadRequest::new(0, &mut a), ReadRequest::new(400, &mut b)]).unwrap();
        assert_eq!((a, b), ([1; 3], [5; 4]));
        assert_eq!(
            device.counts(),
            DeviceCounts { reads: 3, read_bytes: 10, writes: 6, written_bytes: 54, flushes: 2 }
        );
    }
}
