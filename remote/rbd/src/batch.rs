//! Operations in flight.
//!
//! # Invariants
//! - The library has pointers into a batch's buffers until an operation is complete. So a batch waits for all of its
//!   operations when it is dropped, also by a panic, and the caller of [`run`] cannot leak it: it only borrows it.
//! - No function of this program is called by the library: threads wait for completions.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::ptr;

use base::errno::{EINVAL, Errno};

use crate::cluster::check;
use crate::image::Image;
use crate::library::RawCompletion;

/// Operations in flight at a time: so many that the round trips of 4-KiB transfers do not matter.
const DEPTH: usize = 128;
/// Bytes of reads and writes in flight at a time, except for a single larger operation. The library copies the data of
/// writes.
const BYTES_MAX: u64 = 64 << 20;
/// Maximum number of buffers of an operation, as for `readv`.
pub const PARTS_MAX: usize = 1024;

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// An error of the cluster.
    Errno(Errno),
    /// The image ends after this number of bytes of the range.
    Short(u64),
}

/// Operations in flight on an image. `'b` is the lifetime of their buffers.
pub struct Batch<'i, 'b> {
    image: &'i Image,
    in_flight: VecDeque<InFlight<'b>>,
    /// The bytes of them all.
    bytes: u64,
    failures: Vec<(usize, Failure)>,
}

/// An operation that was started.
struct InFlight<'b> {
    completion: *mut RawCompletion,
    /// The number that the caller gave to it.
    index: usize,
    /// Bytes that are read or written.
    bytes: u64,
    parts: Parts<'b>,
}

/// The buffers. The library reads the lists themselves, too, until the operation is complete.
enum Parts<'b> {
    None,
    /// All bytes must be read.
    Read(#[expect(dead_code, reason = "only the library uses it")] Vec<IoSliceMut<'b>>),
    Write(#[expect(dead_code, reason = "only the library uses it")] Vec<IoSlice<'b>>),
}

/// Runs operations, and waits for all of them. Returns those that failed, by their numbers.
pub fn run<'b>(image: &Image, start: impl FnOnce(&mut Batch<'_, 'b>)) -> Vec<(usize, Failure)> {
    let mut batch = Batch { image, in_flight: VecDeque::new(), bytes: 0, failures: Vec::new() };
    start(&mut batch);
    while batch.wait_for_oldest() {}
    std::mem::take(&mut batch.failures)
}

impl<'b> Batch<'_, 'b> {
    /// Reads from `offset` on. At most [`PARTS_MAX`] parts.
    pub fn read(&mut self, index: usize, offset: u64, parts: Vec<IoSliceMut<'b>>) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let (list, count) = (parts.as_ptr(), part_count(parts.len()));
        let (rbd, image) = (self.image.rbd(), self.image.raw());
        // SAFETY: the image is open as long as the batch exists. `list` has `count` elements, and `IoSliceMut` is a
        // `struct iovec`. List and buffers are kept, and the latter borrowed mutably, until the operation is complete:
        // moving the vector does not move its elements.
        self.start(index, bytes, Parts::Read(parts), |completion| unsafe {
            (rbd.rbd_aio_readv)(image, list, count, offset, completion)
        });
    }

    /// Writes from `offset` on. At most [`PARTS_MAX`] parts.
    pub fn write(&mut self, index: usize, offset: u64, parts: Vec<IoSlice<'b>>) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let (list, count) = (parts.as_ptr(), part_count(parts.len()));
        let (rbd, image) = (self.image.rbd(), self.image.raw());
        // SAFETY: as in `read`, with `IoSlice` and shared borrows.
        self.start(index, bytes, Parts::Write(parts), |completion| unsafe {
            (rbd.rbd_aio_writev)(image, list, count, offset, completion)
        });
    }

    /// Makes a range read as zeros.
    pub fn zero(&mut self, index: usize, offset: u64, length: usize) {
        let (rbd, image) = (self.image.rbd(), self.image.raw());
        // SAFETY: the image is open as long as the batch exists.
        self.start(index, 0, Parts::None, |completion| unsafe {
            (rbd.rbd_aio_write_zeroes)(image, offset, length, completion, 0, 0)
        });
    }

    /// Deallocates a range, except for parts of its first and last object.
    pub fn discard(&mut self, index: usize, offset: u64, length: u64) {
        let (rbd, image) = (self.image.rbd(), self.image.raw());
        // SAFETY: the image is open as long as the batch exists.
        self.start(index, 0, Parts::None, |completion| unsafe {
            (rbd.rbd_aio_discard)(image, offset, length, completion)
        });
    }

    /// Makes writes stable that are complete.
    pub fn flush(&mut self, index: usize) {
        let (rbd, image) = (self.image.rbd(), self.image.raw());
        // SAFETY: the image is open as long as the batch exists.
        self.start(index, 0, Parts::None, |completion| unsafe { (rbd.rbd_aio_flush)(image, completion) });
    }

    fn start(
        &mut self,
        index: usize,
        bytes: u64,
        parts: Parts<'b>,
        operation: impl FnOnce(*mut RawCompletion) -> c_int,
    ) {
        while (self.in_flight.len() >= DEPTH || self.bytes.saturating_add(bytes) > BYTES_MAX)
            && self.wait_for_oldest()
        {}
        // Before the operation begins, so that nothing can fail between its start and its entry in the list.
        self.in_flight.reserve(1);
        let mut completion = ptr::null_mut();
        // SAFETY: `completion` is a place for the handle; there is no function to be called.
        let created =
            unsafe { (self.image.rbd().rbd_aio_create_completion)(ptr::null_mut(), None, &mut completion) };
        if let Err(errno) = check(created) {
            self.failures.push((index, Failure::Errno(errno)));
            return;
        }
        match check(operation(completion)) {
            Ok(()) => {
                self.bytes += bytes;
                self.in_flight.push_back(InFlight { completion, index, bytes, parts });
            }
            Err(errno) => {
                // SAFETY: the operation was not started, so that the completion has no other user.
                unsafe { (self.image.rbd().rbd_aio_release)(completion) };
                self.failures.push((index, Failure::Errno(errno)));
            }
        }
    }

    /// Waits for the operation that was started first. Returns `false` if there is none.
    fn wait_for_oldest(&mut self) -> bool {
        // It stays in the list, with its buffers, until it is complete.
        let Some(oldest) = self.in_flight.front() else { return false };
        let (rbd, completion) = (self.image.rbd(), oldest.completion);
        // SAFETY: the completion is that of an operation that was started, and was not released.
        let result = unsafe {
            (rbd.rbd_aio_wait_for_complete)(completion);
            let result = (rbd.rbd_aio_get_return_value)(completion);
            (rbd.rbd_aio_release)(completion);
            result
        };
        let failure = match u64::try_from(result) {
            Ok(read) if matches!(oldest.parts, Parts::Read(_)) && read < oldest.bytes => {
                Some(Failure::Short(read))
            }
            Ok(_) => None,
            Err(_) => Some(Failure::Errno(errno_of(result))),
        };
        if let Some(finished) = self.in_flight.pop_front() {
            self.bytes -= finished.bytes;
            self.failures.extend(failure.map(|failure| (finished.index, failure)));
        }
        true
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        while self.wait_for_oldest() {}
    }
}

fn part_count(parts: usize) -> c_int {
    // The library refuses -1, and what is above its maximum.
    c_int::try_from(parts).unwrap_or(-1)
}

fn errno_of(result: isize) -> Errno {
    i32::try_from(result.saturating_neg()).map_or(EINVAL, Errno::new)
}
