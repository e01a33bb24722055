//! A plug: a batch of writes that is collected, sorted and merged before it is submitted.
//!
//! Blocks of different files are often adjacent, if small files were written one after the other. One by one these are
//! small writes; sorted and merged they are a few large ones (Chinner, "writeback: plug writeback at a high level",
//! 2014: from 28,000 to 1,500 writes per second).
//!
//! # Invariants
//! - Requests of one plug do not overlap, so that their order does not matter.
//! - Although requests are merged, the result says which of them failed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::device::{Device, Durability, WriteRequest};
use crate::error::DeviceError;

/// Maximum length of a merged write: beyond it the cost of the system call does not matter, and fewer requests have to
/// be retried after an error.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of parts of a merged write (`UIO_MAXIOV`).
const RUN_PARTS_MAX: usize = 1024;

/// Writeback of longer writes is started at once, so that the next flush takes less time.
const WRITEBACK_BYTES: usize = 256 << 10;

/// Totals of all plugs.
#[derive(Debug, Default)]
pub struct PlugCounters {
    requests: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    retries: AtomicU64,
}

/// A snapshot of [`PlugCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlugCounts {
    /// Requests.
    pub requests: u64,
    /// Writes to the device, without [`retries`](Self::retries).
    pub writes: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Requests that were written again one by one after a merged write failed.
    pub retries: u64,
}

impl PlugCounters {
    /// The current totals.
    pub fn counts(&self) -> PlugCounts {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        PlugCounts {
            requests: load(&self.requests),
            writes: load(&self.writes),
            bytes: load(&self.bytes),
            retries: load(&self.retries),
        }
    }
}

/// A batch of writes; see the module.
#[derive(Debug, Default)]
pub struct Plug<'b> {
    requests: Vec<WriteRequest<'b>>,
}

/// A request that failed: its index in the order of [`Plug::push`], and the error.
pub type FailedRequest = (usize, DeviceError);

impl<'b> Plug<'b> {
    /// An empty plug.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a write.
    pub fn push(&mut self, request: WriteRequest<'b>) {
        self.requests.push(request);
    }

    /// Submits all writes, sorted and merged, with [`Durability::Buffered`]. Returns the requests that failed.
    pub fn finish<D: Device + ?Sized>(self, device: &D, counters: &PlugCounters) -> Vec<FailedRequest> {
        let requests = self.requests;
        let mut order: Vec<usize> = (0..requests.len()).collect();
        let request = |index: usize| requests.get(index).copied().unwrap_or(WriteRequest::new(0, &[]));
        order.sort_unstable_by_key(|index| request(*index).offset);
        counters.requests.fetch_add(requests.len() as u64, Relaxed);
        counters.bytes.fetch_add(requests.iter().map(|request| request.buf.len() as u64).sum(), Relaxed);
        let mut failed = Vec::new();
        let mut rest = order.as_slice();
        let mut parts = Vec::new();
        while let Some(first) = rest.first() {
            let offset = request(*first).offset;
            parts.clear();
            let mut length = 0;
            for index in rest {
                let next = request(*index);
                let fits = length + next.buf.len() <= RUN_BYTES_MAX && parts.len() < RUN_PARTS_MAX;
                if next.offset != offset + length as u64 || !(fits || parts.is_empty()) {
                    break;
                }
                length += next.buf.len();
                parts.push(next.buf);
            }
            let (run, tail) = rest.split_at(parts.len().min(rest.len()).max(1));
            rest = tail;
            counters.writes.fetch_add(1, Relaxed);
            let Err(error) = device.write_vectored(offset, &parts) else {
                if length >= WRITEBACK_BYTES {
                    device.start_writeback(offset, length as u64);
                }
                continue;
            };
            if let [only] = run {
                failed.push((*only, error));
                continue;
            }
            for index in run {
                let request = request(*index);
                counters.retries.fetch_add(1, Relaxed);
                if let Err(error) = device.write_at(request.offset, request.buf, Durability::Buffered) {
                    failed.push((*index, error));
                }
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileDevice, MemoryDevice, OpenOptions};

    #[test]
    fn adjacent_requests_are_merged_in_any_order() {
        let (device, counters) = (MemoryDevice::new(1 << 20), PlugCounters::default());
        let pieces: Vec<Vec<u8>> = (0..64u8).map(|n| vec![n + 1; 4096]).collect();
        let mut plug = Plug::new();
        for n in (0..64).map(|n| n * 37 % 64) {
            plug.push(WriteRequest::new(n as u64 * 4096, &pieces[n]));
        }
        // One that is not adjacent.
        plug.push(WriteRequest::new(600_000, b"alone"));
        assert!(plug.finish(&device, &counters).is_empty());
        assert_eq!(
            counters.counts(),
            PlugCounts { requests: 65, writes: 2, bytes: 64 * 4096 + 5, retries: 0 }
        );
        let mut all = vec![0; 64 * 4096];
        device.read_at(0, &mut all).unwrap();
        assert_eq!(all, pieces.concat());
    }

    #[test]
    fn merged_writes_are_limited_and_long_requests_are_not_split() {
        let (device, counters) = (MemoryDevice::new(1 << 24), PlugCounters::default());
        let (long, short) = (vec![7; 3 << 20], vec![8; 1 << 19]);
        let mut plug = Plug::new();
        plug.push(WriteRequest::new(0, &long));
        for n in 0..4 {
            plug.push(WriteRequest::new((3 << 20) + (n << 19), &short));
        }
        assert!(plug.finish(&device, &counters).is_empty());
        assert_eq!(counters.counts().writes, 3);
    }

    #[test]
    fn merged_writes_of_files_are_one_system_call() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        let pieces: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; 1000 + usize::from(n)]).collect();
        let (mut plug, mut offset) = (Plug::new(), 77);
        for piece in &pieces {
            plug.push(WriteRequest::new(offset, piece));
            offset += piece.len() as u64;
        }
        let counters = PlugCounters::default();
        assert!(plug.finish(&device, &counters).is_empty());
        assert_eq!(counters.counts().writes, 1);
        assert_eq!(std::fs::read(&path).unwrap()[77..offset as usize], pieces.concat());
        let mut outside = Plug::new();
        outside.push(WriteRequest::new((1 << 20) - 1, b"ab"));
        assert_eq!(outside.finish(&device, &counters).len(), 1);
    }
}
