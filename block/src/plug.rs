//! A plug: a batch of writes that is collected, sorted and merged before it is submitted.
//!
//! Blocks of different files are often adjacent, if small files were written one after the other. One by one these are
//! small writes; sorted and merged they are a few large ones (Chinner, "writeback: plug writeback at a high level",
//! 2014: from 28,000 to 1,500 writes per second).
//!
//! The writes of a plug are submitted together ([`Device::write_runs`]): with direct I/O they are in flight at once.
//!
//! # Invariants
//! - Requests of one plug do not overlap, so that their order does not matter.
//! - Although requests are merged, the result says which of them failed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::device::{Device, Durability, WriteRequest, WriteRun};
use crate::error::DeviceError;

/// Maximum length of a merged write: beyond it the cost of the system call does not matter, and fewer requests have to
/// be retried after an error.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of parts of a merged write (`UIO_MAXIOV`).
const RUN_PARTS_MAX: usize = 1024;

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
        let mut requests: Vec<(usize, WriteRequest<'b>)> = self.requests.into_iter().enumerate().collect();
        requests.sort_unstable_by_key(|(_, request)| request.offset);
        let parts: Vec<&[u8]> = requests.iter().map(|(_, request)| request.buf).collect();
        let mut runs = Vec::new();
        let mut merged = Vec::new();
        let (mut rest, mut rest_parts) = (requests.as_slice(), parts.as_slice());
        while let Some((_, first)) = rest.first() {
            let count = leading_run(rest);
            let ((run, later), (run_parts, later_parts)) = (rest.split_at(count), rest_parts.split_at(count));
            (rest, rest_parts) = (later, later_parts);
            runs.push(WriteRun { offset: first.offset, parts: run_parts });
            merged.push(run);
        }
        counters.requests.fetch_add(requests.len() as u64, Relaxed);
        counters.bytes.fetch_add(parts.iter().map(|part| part.len() as u64).sum(), Relaxed);
        counters.writes.fetch_add(runs.len() as u64, Relaxed);
        let mut failed = Vec::new();
        for (index, error) in device.write_runs(&runs) {
            match merged.get(index) {
                Some([(only, _)]) => failed.push((*only, error)),
                Some(run) => {
                    counters.retries.fetch_add(run.len() as u64, Relaxed);
                    let again = |(index, request): &(usize, WriteRequest<'_>)| {
                        let written = device.write_at(request.offset, request.buf, Durability::Buffered);
                        written.err().map(|error| (*index, error))
                    };
                    failed.extend(run.iter().filter_map(again));
                }
                None => {}
            }
        }
        failed
    }
}

/// Returns how many of the first requests, which are sorted, make one write: at least one.
fn leading_run(requests: &[(usize, WriteRequest<'_>)]) -> usize {
    let mut length = 0;
    let mut end = requests.first().map_or(0, |(_, first)| first.offset);
    let continues = |(_, next): &&(usize, WriteRequest<'_>)| {
        let fits = length == 0 || length + next.buf.len() <= RUN_BYTES_MAX;
        let is_next = next.offset == end && fits;
        length += next.buf.len();
        end += next.buf.len() as u64;
        is_next
    };
    requests.iter().take(RUN_PARTS_MAX).take_while(continues).count().max(1)
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

    /// With direct I/O and io_uring, all writes are in flight at once: against one after the other, with any alignment.
    #[test]
    fn writes_at_once_write_the_same() {
        use crate::{AlignedBuf, Io};
        let directory = tempfile::tempdir().unwrap();
        for io in [Io::Pread, Io::Auto] {
            for direct in [false, true] {
                let path = directory.path().join(format!("{io:?} {direct}"));
                std::fs::write(&path, vec![0; 4 << 20]).unwrap();
                let options = OpenOptions { writable: true, direct, io, ..OpenOptions::default() };
                // Some file systems have no direct I/O.
                let Ok(device) = FileDevice::open(&path, &options) else { continue };
                let (mut bytes, mut plug) = (AlignedBuf::zeroed(512 * 4096 + 512), Plug::new());
                (0..).zip(bytes.iter_mut()).for_each(|(at, byte)| *byte = base::random::mix(at) as u8);
                let mut expected = vec![0; 4 << 20];
                for n in 0..512usize {
                    // Runs of one to several blocks, with holes; every 40th is not aligned in memory.
                    let from = n * 4096 + if n % 40 == 7 { 512 } else { 0 };
                    let (to, piece) = ((n + n / 3) * 4096, &bytes[from..from + 4096]);
                    expected[to..to + 4096].copy_from_slice(piece);
                    plug.push(WriteRequest::new(to as u64, piece));
                }
                let counters = PlugCounters::default();
                assert!(plug.finish(&device, &counters).is_empty());
                assert_eq!(counters.counts().writes, 171);
                assert!(std::fs::read(&path).unwrap() == expected, "{io:?}, direct: {direct}");
                let mut outside = Plug::new();
                outside.push(WriteRequest::new(0, &bytes[..4096]));
                outside.push(WriteRequest::new(4 << 20, &bytes[..4096]));
                outside.push(WriteRequest::new(8192, &bytes[..4096]));
                let failed = outside.finish(&device, &counters);
                assert_eq!(failed.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
            }
        }
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
