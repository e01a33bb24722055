//! Batches of reads and writes of a file through io_uring, with one system call per batch.
//!
//! Single reads use `pread`: a ring gains nothing for them. A batch of pages in the page cache is read at the rate of
//! `pread` (4 KiB pieces: 0-8 % faster); of other pages, or with direct I/O, 1.4 to 2.3 times as fast
//! (`examples/read_rate.rs`, 2 threads, virtual disk). There is no async runtime: the caller waits for its batch.
//!
//! # Invariants
//! - Nothing is in flight when `read_many` or `write_many` returns or unwinds: the kernel uses borrowed buffers.
//! - After an error or a short transfer the run is done again with `pread` or `pwrite`, which gives the data, or the
//!   error with its offset.
//!
//! # Locking
//! One mutex per ring, taken with `try_lock` only. A thread tries its own ring first, then the others, and uses `pread`
//! if all are busy: no thread waits for a ring.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use crate::device::{Device, Durability, ReadRequest, WriteRequest, WriteRun, check_range};
use crate::error::{DeviceError, Operation};
use crate::file::{FileDevice, sort_reads};

/// Operations in flight per ring.
const ENTRIES: u32 = 128;
/// Maximum number of rings per device. Each takes some ten KiB of kernel memory once it is used.
const RINGS_MAX: usize = 64;

/// The rings of one device.
pub struct Rings(Box<[RingSlot]>);

/// A ring that is set up when first needed, on its own cache lines.
#[repr(align(128))]
#[derive(Default)]
struct RingSlot(Mutex<Option<IoUring>>);

impl Rings {
    /// Sets up the first ring.
    ///
    /// # Errors
    /// The kernel is too old, or a policy forbids io_uring.
    pub fn new() -> io::Result<Self> {
        let first = new_ring()?;
        let count = std::thread::available_parallelism().map_or(1, |n| n.get()).min(RINGS_MAX);
        let mut slots: Vec<RingSlot> = (1..count).map(|_| RingSlot::default()).collect();
        slots.push(RingSlot(Mutex::new(Some(first))));
        Ok(Self(slots.into_boxed_slice()))
    }

    /// See [`Device::read_many`]. The caller has checked the ranges.
    pub fn read_many(&self, file: &FileDevice, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let mut sorted = sort_reads(reads);
        let mut runs = Vec::new();
        let mut slices = Vec::with_capacity(sorted.len());
        for group in file.group_reads(&mut sorted) {
            if let [read] = &mut *group
                && file.needs_bounce(read.offset, read.buf)
            {
                file.read_at(read.offset, read.buf)?;
                continue;
            }
            let run = Run {
                offset: group.first().map_or(0, |read| read.offset),
                length: group.iter().map(|read| read.buf.len()).sum(),
                first: slices.len(),
                count: group.len(),
                done: false,
            };
            slices.extend(group.iter_mut().map(|read| IoSliceMut::new(read.buf)));
            runs.push(run);
        }
        if runs.len() > 1 {
            let fd = file.as_fd().as_raw_fd();
            self.run(&mut runs, |index, run| read_entry(fd, index, run, &mut slices));
        }
        for run in runs.iter().filter(|run| !run.done) {
            let mut offset = run.offset;
            for slice in slices.iter_mut().skip(run.first).take(run.count) {
                file.read_at(offset, slice)?;
                offset += slice.len() as u64;
            }
        }
        Ok(())
    }

    /// See [`Device::write_many`]. The file must be writable.
    pub fn write_many(&self, file: &FileDevice, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let mut runs = Vec::with_capacity(writes.len());
        for (first, write) in writes.iter().enumerate() {
            check_range(file, Operation::Write, write.offset, write.buf.len())?;
            if !file.needs_bounce(write.offset, write.buf) {
                let (offset, length) = (write.offset, write.buf.len());
                runs.push(Run { offset, length, first, count: 1, done: false });
            }
        }
        if runs.len() > 1 {
            let fd = types::Fd(file.as_fd().as_raw_fd());
            self.run(&mut runs, |index, run| {
                let buf = writes.get(run.first)?.buf;
                let length = u32::try_from(buf.len()).ok()?;
                let write = opcode::Write::new(fd, buf.as_ptr(), length).offset(run.offset).build();
                Some(write.user_data(index as u64))
            });
        }
        let mut done = vec![false; writes.len()];
        for run in &runs {
            if let Some(flag) = done.get_mut(run.first) {
                *flag = run.done;
            }
        }
        let mut rest = writes.iter().zip(done).filter(|(_, done)| !done);
        rest.try_for_each(|(write, _)| file.write_at(write.offset, write.buf, Durability::Buffered))
    }

    /// Writes runs with direct I/O, all at once. Returns for each whether it is written; the others are written again,
    /// to complete them or to get the error. See [`Device::write_runs`]. The file must be writable.
    pub fn write_runs(&self, file: &FileDevice, writes: &[WriteRun<'_>]) -> Vec<bool> {
        let (mut runs, mut slices) = (Vec::with_capacity(writes.len()), Vec::new());
        for write in writes {
            let (offset, length, count) = (write.offset, write.length(), write.parts.len());
            let fits = check_range(file, Operation::Write, offset, length).is_ok();
            let bounces = write.parts.iter().any(|part| file.needs_bounce(offset, part));
            let count = if fits && !bounces { count } else { 0 };
            runs.push(Run { offset, length, first: slices.len(), count, done: false });
            slices.extend(write.parts.iter().take(count).map(|part| IoSlice::new(part)));
        }
        let mut queued: Vec<Run> = runs.iter().filter(|run| run.count > 0).cloned().collect();
        if queued.len() > 1 {
            let fd = file.as_fd().as_raw_fd();
            self.run(&mut queued, |index, run| write_entry(fd, index, run, &slices));
        }
        let mut written = queued.iter().map(|run| run.done);
        runs.iter().map(|run| run.count > 0 && written.next().unwrap_or(false)).collect()
    }

    /// Processes the runs with a free ring, if there is one. Runs that were not completed keep `done == false`.
    fn run(&self, runs: &mut [Run], entry: impl FnMut(usize, &Run) -> Option<squeue::Entry>) {
        let Some(mut slot) = self.free_ring() else { return };
        if slot.is_none() {
            *slot = new_ring().ok();
        }
        let Some(ring) = slot.as_mut() else { return };
        let is_usable = Batch { ring, in_flight: 0 }.run(runs, entry);
        if !is_usable {
            *slot = None;
        }
    }

    /// A free ring, preferably the one that this thread used last.
    fn free_ring(&self) -> Option<MutexGuard<'_, Option<IoUring>>> {
        let start = thread_number();
        (0..self.0.len()).find_map(|step| {
            let slot = self.0.get((start + step) % self.0.len())?;
            match slot.0.try_lock() {
                Ok(guard) => Some(guard),
                // A thread panicked with the lock. `Batch` has waited for everything in flight; use a new ring anyway.
                Err(TryLockError::Poisoned(poisoned)) => {
                    let mut guard = poisoned.into_inner();
                    *guard = None;
                    Some(guard)
                }
                Err(TryLockError::WouldBlock) => None,
            }
        })
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rings({})", self.0.len())
    }
}

/// Adjacent requests that are done by one operation.
#[derive(Clone)]
struct Run {
    offset: u64,
    length: usize,
    /// Index of the first slice.
    first: usize,
    /// Number of slices.
    count: usize,
    done: bool,
}

/// Operations in flight on one ring. Dropping it waits for them.
struct Batch<'r> {
    ring: &'r mut IoUring,
    in_flight: usize,
}

impl Batch<'_> {
    /// Submits a queue entry for each run and waits for all. Returns `false` if the ring must not be used again. The
    /// buffers of the entries are borrowed by the closure, and so outlive this call.
    fn run(mut self, runs: &mut [Run], mut entry: impl FnMut(usize, &Run) -> Option<squeue::Entry>) -> bool {
        let mut next = 0;
        while next < runs.len() || self.in_flight > 0 {
            while self.in_flight < ENTRIES as usize
                && let Some(run) = runs.get(next)
                && let Some(entry) = entry(next, run)
            {
                // SAFETY: the entry points to buffers that the closure borrows. They stay borrowed and are not moved
                // until this function returns, and by then, even by unwinding, `drop` has waited for each entry that
                // the kernel accepted.
                if unsafe { self.ring.submission().push(&entry) }.is_err() {
                    break;
                }
                self.in_flight += 1;
                next += 1;
            }
            // If more runs follow, wait for half, so that the next are submitted while the others are processed.
            let wait_for = if next < runs.len() { self.in_flight.div_ceil(2) } else { self.in_flight };
            if self.in_flight == 0 {
                return false; // No entry could be queued: the caller uses pread.
            }
            match self.ring.submit_and_wait(wait_for) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => {}
                Err(_) => return false,
            }
            self.reap(Some(runs));
        }
        true
    }

    /// Consumes the available completions; with `runs`, marks those that are complete as done.
    fn reap(&mut self, mut runs: Option<&mut [Run]>) {
        for completion in self.ring.completion() {
            self.in_flight = self.in_flight.saturating_sub(1);
            let index = completion.user_data() as usize;
            if let Some(run) = runs.as_mut().and_then(|runs| runs.get_mut(index)) {
                run.done = usize::try_from(completion.result()).is_ok_and(|count| count == run.length);
            }
        }
    }
}

impl Drop for Batch<'_> {
    /// After an error, entries that the kernel did not accept are dropped with the ring; the others are waited for.
    /// Completions arrive in shared memory, so that this does not depend on a system call that may fail.
    fn drop(&mut self) {
        self.reap(None);
        while self.in_flight > self.ring.submission().len() {
            std::thread::sleep(Duration::from_micros(50));
            self.reap(None);
        }
    }
}

/// The queue entry of a read; `None` only if its slices are missing.
fn read_entry(file: RawFd, index: usize, run: &Run, slices: &mut [IoSliceMut<'_>]) -> Option<squeue::Entry> {
    let parts = slices.get_mut(run.first..run.first + run.count)?;
    let fd = types::Fd(file);
    let entry = match parts {
        [] => return None,
        [one] => {
            opcode::Read::new(fd, one.as_mut_ptr(), u32::try_from(one.len()).ok()?).offset(run.offset).build()
        }
        // `IoSliceMut` is guaranteed to have the layout of `iovec`.
        many => opcode::Readv::new(fd, many.as_ptr().cast(), u32::try_from(many.len()).ok()?)
            .offset(run.offset)
            .build(),
    };
    Some(entry.user_data(index as u64))
}

/// The queue entry of a write; `None` only if its slices are missing.
fn write_entry(file: RawFd, index: usize, run: &Run, slices: &[IoSlice<'_>]) -> Option<squeue::Entry> {
    let parts = slices.get(run.first..run.first + run.count)?;
    // `IoSlice` is guaranteed to have the layout of `iovec`.
    let length = u32::try_from(parts.len()).ok()?;
    let entry = opcode::Writev::new(types::Fd(file), parts.as_ptr().cast(), length).offset(run.offset);
    Some(entry.build().user_data(index as u64))
}

/// Whether `io_uring_enter` may succeed if it is called again.
fn is_transient(error: &io::Error) -> bool {
    [Errno::INTR, Errno::AGAIN, Errno::BUSY].iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

/// A ring that supports all operations used here.
fn new_ring() -> io::Result<IoUring> {
    let ring = IoUring::new(ENTRIES)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Readv::CODE, opcode::Write::CODE, opcode::Writev::CODE];
    if needed.iter().all(|code| probe.is_supported(*code)) { Ok(ring) } else { Err(Errno::NOSYS.into()) }
}

/// A small number per thread, which distributes threads over the rings.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Io, OpenOptions};

    #[test]
    fn a_batch_of_writes_is_complete_and_one_past_the_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let options = OpenOptions { writable: true, io: Io::Uring, ..OpenOptions::default() };
        let Ok(device) = FileDevice::open(&path, &options) else { return };
        let pieces: Vec<Vec<u8>> = (0..200u64).map(|n| vec![n as u8; 1000]).collect();
        let writes: Vec<_> =
            (0..).zip(&pieces).map(|(n, piece)| WriteRequest::new(n * 5000, piece)).collect();
        device.write_many(&writes).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for (n, piece) in pieces.iter().enumerate() {
            assert_eq!(&bytes[n * 5000..n * 5000 + 1000], piece);
        }
        assert!(device.write_many(&[WriteRequest::new((1 << 20) - 1, b"ab")]).is_err());
    }
}
