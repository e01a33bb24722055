//! Writes that are held back until there are many, and then reach the device sorted and merged.
//!
//! What is written together often lies together, though it belongs to different files: the blocks of small files that
//! were written one after the other. Issued one by one they are small writes; held back and sorted, they are few large
//! ones (Chinner, "writeback: plug writeback at a high level", 2014: 28,000 writes a second became 1,500).
//!
//! # Invariants
//! - Requests of one plug do not overlap, so their order is free.
//! - Every request is told apart in the result: which of them failed is known, though they were merged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::device::{Device, Durability, WriteRequest};
use crate::error::DeviceError;

/// The longest merged write: beyond it the cost of a call no longer counts, and a failure strikes less.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Pieces of one merged write: the kernel's limit of vectors.
const RUN_PARTS_MAX: usize = 1024;

/// From this length on the medium is asked to start with a write at once: what waits until the flush makes that long.
const START_BYTES: usize = 256 << 10;

/// What went through plugs: totals since the start.
#[derive(Debug, Default)]
pub struct PlugCounters {
    requests: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    again: AtomicU64,
}

/// A look at [`PlugCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlugCounts {
    /// Requests that were put in.
    pub requests: u64,
    /// Writes that the device got for them, but for those of [`again`](Self::again).
    pub writes: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Requests that were written once more alone, because the merged write that they were part of failed.
    pub again: u64,
}

impl PlugCounters {
    /// The totals now.
    pub fn counts(&self) -> PlugCounts {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        PlugCounts {
            requests: load(&self.requests),
            writes: load(&self.writes),
            bytes: load(&self.bytes),
            again: load(&self.again),
        }
    }
}

/// Writes that are held back; see the module.
#[derive(Debug, Default)]
pub struct Plug<'b> {
    requests: Vec<WriteRequest<'b>>,
}

/// A request that failed: its index in the order in which requests were put in, and why.
pub type FailedRequest = (usize, DeviceError);

impl<'b> Plug<'b> {
    /// With nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds a write back.
    pub fn push(&mut self, request: WriteRequest<'b>) {
        self.requests.push(request);
    }

    /// How many writes are held back.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether nothing is held back.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Issues all writes, in the order of the device, with neighbours in one, as [`Durability::Buffered`]. Gives those
    /// that failed.
    pub fn finish<D: Device + ?Sized>(self, device: &D, counters: &PlugCounters) -> Vec<FailedRequest> {
        let requests = self.requests;
        let mut order: Vec<usize> = (0..requests.len()).collect();
        let of = |at: usize| requests.get(at).copied().unwrap_or(WriteRequest::new(0, &[]));
        order.sort_unstable_by_key(|at| of(*at).offset);
        counters.requests.fetch_add(requests.len() as u64, Relaxed);
        counters.bytes.fetch_add(requests.iter().map(|request| request.buf.len() as u64).sum(), Relaxed);
        let mut failed = Vec::new();
        let mut rest = order.as_slice();
        let mut parts = Vec::new();
        while let Some(first) = rest.first() {
            let offset = of(*first).offset;
            parts.clear();
            let mut length = 0;
            for at in rest {
                let next = of(*at);
                let fits = length + next.buf.len() <= RUN_BYTES_MAX && parts.len() < RUN_PARTS_MAX;
                if next.offset != offset + length as u64 || !(fits || parts.is_empty()) {
                    break;
                }
                length += next.buf.len();
                parts.push(next.buf);
            }
            let (run, behind) = rest.split_at(parts.len().min(rest.len()).max(1));
            rest = behind;
            counters.writes.fetch_add(1, Relaxed);
            let Err(error) = device.write_vectored(offset, &parts) else {
                if length >= START_BYTES {
                    device.start_writing(offset, length as u64);
                }
                continue;
            };
            if let [only] = run {
                failed.push((*only, error));
                continue;
            }
            for at in run {
                let request = of(*at);
                counters.again.fetch_add(1, Relaxed);
                if let Err(error) = device.write_at(request.offset, request.buf, Durability::Buffered) {
                    failed.push((*at, error));
                }
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, FaultDevice, FileDevice, MemoryDevice, OpenOptions, Operation, When};

    #[test]
    fn neighbours_become_one_write_whatever_their_order() {
        let (device, counters) = (MemoryDevice::new(1 << 20), PlugCounters::default());
        let pieces: Vec<Vec<u8>> = (0..64u8).map(|n| vec![n + 1; 4096]).collect();
        let mut plug = Plug::new();
        for n in (0..64).map(|n| n * 37 % 64) {
            plug.push(WriteRequest::new(n as u64 * 4096, &pieces[n]));
        }
        // One that lies alone.
        plug.push(WriteRequest::new(600_000, b"alone"));
        assert!(plug.finish(&device, &counters).is_empty());
        assert_eq!(counters.counts(), PlugCounts { requests: 65, writes: 2, bytes: 64 * 4096 + 5, again: 0 });
        let mut all = vec![0; 64 * 4096];
        device.read_at(0, &mut all).unwrap();
        assert_eq!(all, pieces.concat());
    }

    #[test]
    fn runs_have_a_largest_size_and_long_requests_stay_whole() {
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
    fn of_a_merged_write_only_the_struck_request_fails() {
        let fault = Fault::io_error(Operation::Write, When::Always).within(8192..8193);
        let device = FaultDevice::new(MemoryDevice::new(1 << 20), vec![fault]);
        let (counters, block) = (PlugCounters::default(), vec![9; 4096]);
        let mut plug = Plug::new();
        for n in 0..4 {
            plug.push(WriteRequest::new(n * 4096, &block));
        }
        let failed: Vec<_> = plug.finish(&device, &counters).into_iter().map(|(at, _)| at).collect();
        assert_eq!(failed, [2]);
        let mut bytes = vec![0; 4 * 4096];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..8192].iter().chain(&bytes[12288..]).all(|byte| *byte == 9));
    }

    #[test]
    fn files_take_a_run_with_one_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        let pieces: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; 1000 + usize::from(n)]).collect();
        let (mut plug, mut at) = (Plug::new(), 77);
        for piece in &pieces {
            plug.push(WriteRequest::new(at, piece));
            at += piece.len() as u64;
        }
        let counters = PlugCounters::default();
        assert!(plug.finish(&device, &counters).is_empty());
        assert_eq!(counters.counts().writes, 1);
        assert_eq!(std::fs::read(&path).unwrap()[77..at as usize], pieces.concat());
        let mut outside = Plug::new();
        outside.push(WriteRequest::new((1 << 20) - 1, b"ab"));
        assert_eq!(outside.finish(&device, &counters).len(), 1);
    }
}
