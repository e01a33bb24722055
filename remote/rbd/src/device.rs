//! An image as a block device.
//!
//! # Invariants
//! - A device for changes has the exclusive lock from opening to closing. A client that lost it was locked out of the
//!   cluster before another one got it, so that its writes fail, and are not carried out later.
//! - Without the cache of librbd, a write that has returned is stable; a flush costs no round trip.
//! - After a write or flush without an answer in the time limit, all further ones fail, and the lock is not released:
//!   the request may still be carried out, so the next client must lock this one out before it reads anything. The
//!   image stays open until the process ends, and other clients see this one as alive until then: they must take over.

use std::io::{IoSlice, IoSliceMut};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base::errno::{ETIMEDOUT, Errno};
use block::{
    Device, DeviceError, Durability, ErrnoMessage, Operation, ReadRequest, WriteRequest, WriteRun,
    check_range, check_write,
};

use crate::batch::{self, Batch, Failure, PARTS_MAX};
use crate::cluster::Pool;
use crate::error::{RbdError, advice, message};
use crate::image::{Image, image_error};
use crate::url::RbdUrl;

/// Bytes per operation at most: the library splits it by objects, of 4 MiB by default.
const PIECE: usize = 32 << 20;
/// Bytes that are zeroed by one operation.
const ZERO_PIECE: u64 = 1 << 30;

/// Objects that are discarded by one operation.
const DISCARD_OBJECTS: u64 = 256;

/// How to open an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RbdOptions {
    /// Open for changes, with the exclusive lock.
    pub writable: bool,
    /// How long to wait for another client that has the lock; by default that is an error at once.
    pub wait: Option<Duration>,
    /// Take the lock from a client that has it, and lock that client out of the cluster, with all its other images. A
    /// device of this process that uses the same [`Pool`] is not such a client.
    pub take_over: bool,
    /// Time limit of the connection and of each request. By default the monitors must answer in 30 seconds, and reads
    /// and writes wait until the cluster has recovered, unless its configuration has limits.
    pub timeout: Option<Duration>,
}

/// An image of Ceph, or a snapshot of one.
pub struct RbdDevice {
    /// Leaked if the lock must not be released.
    image: ManuallyDrop<Image>,
    size: AtomicU64,
    /// See [`Image::object_period`].
    period: u64,
    writable: bool,
    /// A write or flush got no answer.
    is_uncertain: AtomicBool,
}

impl RbdDevice {
    /// Opens an image, or a snapshot of it read-only.
    ///
    /// # Errors
    /// [`RbdError`]; [`RbdError::Locked`] if another client has it open for changes.
    pub fn open(url: &RbdUrl, options: &RbdOptions) -> Result<Self, RbdError> {
        Self::open_in(&Pool::open(url, options.timeout)?, url, options)
    }

    /// Opens an image in a pool that is open.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(pool: &Pool, url: &RbdUrl, options: &RbdOptions) -> Result<Self, RbdError> {
        let image = match options.writable {
            true => Image::open_writable(pool, url)?,
            false => Image::open_read_only(pool, url)?,
        };
        if options.writable {
            image.lock(options.wait.unwrap_or_default(), options.take_over)?;
        }
        let failed = |errno| image_error(url, "examine the image", errno);
        let size = image.size().map_err(failed)?.into();
        let period = image.object_period().map_err(failed)?;
        let image = ManuallyDrop::new(image);
        Ok(Self { image, size, period, writable: options.writable, is_uncertain: false.into() })
    }

    /// Address of another client that has the image open for changes. A snapshot does not change.
    ///
    /// # Errors
    /// [`RbdError::Image`].
    pub fn writer(&self) -> Result<Option<String>, RbdError> {
        if self.writable || self.image.url().snapshot.is_some() {
            return Ok(None);
        }
        // A client that opened the image read-only cannot ask who has the lock, but it can list the watchers: these are
        // clients that have the image open, except read-only.
        let watchers = self.image.watchers();
        let watchers = watchers
            .map_err(|errno| image_error(self.image.url(), "list the clients of the image", errno))?;
        Ok(watchers.into_iter().next().map(|watcher| watcher.address))
    }

    fn error(&self, operation: Operation, offset: u64, length: u64, failure: Failure) -> DeviceError {
        let device = self.describe().into();
        match failure {
            Failure::Short(read) => DeviceError::Shrunk { device, offset, length, read },
            Failure::Errno(errno) => {
                let source = ErrnoMessage::new(errno.get(), format!("{}{}", message(errno), advice(errno)));
                DeviceError::Io { device, operation, offset, length, source: source.into() }
            }
        }
    }

    /// Runs operations of one kind, and returns those that failed. All of them are looked at, not only those that are
    /// reported.
    fn run_all<'b>(
        &self,
        operation: Operation,
        start: impl FnOnce(&mut Batch<'_, 'b>),
    ) -> Vec<(usize, Failure)> {
        let failures = batch::run(&self.image, start);
        if leaves_uncertain(operation, failures.iter().map(|(_, failure)| failure)) {
            self.is_uncertain.store(true, Relaxed);
        }
        failures
    }

    /// Refuses further changes after one without an answer.
    fn expect_certain(&self, operation: Operation, offset: u64, length: u64) -> Result<(), DeviceError> {
        match self.is_uncertain.load(Relaxed) {
            true => Err(self.error(operation, offset, length, Failure::Errno(ETIMEDOUT))),
            false => Ok(()),
        }
    }

    /// Runs operations of one kind over a range; the first error is that of the whole range.
    fn run<'b>(
        &self,
        operation: Operation,
        offset: u64,
        length: u64,
        start: impl FnOnce(&mut Batch<'_, 'b>),
    ) -> Result<(), DeviceError> {
        match self.run_all(operation, start).into_iter().min_by_key(|(index, _)| *index) {
            Some((_, failure)) => Err(self.error(operation, offset, length, failure)),
            None => Ok(()),
        }
    }

    /// Checks a change before it is started.
    fn check_change(&self, operation: Operation, offset: u64, length: u64) -> Result<(), DeviceError> {
        check_write(self, offset, length)?;
        self.expect_certain(operation, offset, length)
    }

    fn resize_error(&self, size: u64, errno: Errno) -> DeviceError {
        self.error(Operation::Resize, 0, size, Failure::Errno(errno))
    }
}

impl Drop for RbdDevice {
    fn drop(&mut self) {
        if !self.is_uncertain.load(Relaxed) {
            // SAFETY: the image is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.image) }
        }
    }
}

impl Device for RbdDevice {
    fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    /// Of a writable device: one that is read-only is not told of changes.
    fn refresh_size(&self) -> Result<u64, DeviceError> {
        let size = self.image.size().map_err(|errno| self.resize_error(0, errno))?;
        Ok(self.size.fetch_max(size, Relaxed).max(size))
    }

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        self.check_change(Operation::Resize, 0, 0)?;
        self.image.resize(size).map_err(|errno| {
            if leaves_uncertain(Operation::Resize, [&Failure::Errno(errno)]) {
                self.is_uncertain.store(true, Relaxed);
            }
            self.resize_error(size, errno)
        })?;
        self.size.store(size, Relaxed);
        Ok(())
    }

    /// Each write of Ceph to one object is atomic; QEMU and the kernel's driver report the same size.
    fn logical_sector_size(&self) -> u32 {
        512
    }

    fn is_read_only(&self) -> bool {
        !self.writable
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, buf.len())?;
        self.run(Operation::Read, offset, buf.len() as u64, |batch| {
            for (piece, start) in buf.chunks_mut(PIECE).zip((offset..).step_by(PIECE)) {
                batch.read(0, start, vec![IoSliceMut::new(piece)]);
            }
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.write_vectored(offset, &[buf])?;
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Fua => self.flush(),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if !self.writable {
            return Ok(());
        }
        self.expect_certain(Operation::Flush, 0, 0)?;
        self.run(Operation::Flush, 0, 0, |batch| batch.flush(0))
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        for read in reads.iter() {
            check_range(self, Operation::Read, read.offset, read.buf.len())?;
        }
        let ranges: Vec<(u64, u64)> = reads.iter().map(|read| (read.offset, read.buf.len() as u64)).collect();
        let failures = self.run_all(Operation::Read, |batch| {
            for (index, read) in reads.iter_mut().enumerate() {
                for (piece, start) in read.buf.chunks_mut(PIECE).zip((read.offset..).step_by(PIECE)) {
                    batch.read(index, start, vec![IoSliceMut::new(piece)]);
                }
            }
        });
        match failures.into_iter().min_by_key(|(index, _)| *index) {
            Some((index, failure)) => {
                let (offset, length) = ranges.get(index).copied().unwrap_or_default();
                Err(self.error(Operation::Read, offset, length, failure))
            }
            None => Ok(()),
        }
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check_change(Operation::Write, offset, length)?;
        self.run(Operation::Write, offset, length, |batch| {
            for (start, length) in pieces(offset, length, ZERO_PIECE) {
                batch.zero(0, start, length as usize);
            }
        })
    }

    /// Deallocates objects. Parts of objects may keep their contents, depending on `rbd_discard_granularity_bytes`,
    /// except for the last object of the image, if it is shorter than the others.
    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.check_change(Operation::Discard, offset, length)?;
        let end = offset + length;
        let last = end - end % self.period;
        let to_zero = if end == self.size() && offset <= last { last..end } else { end..end };
        self.run(Operation::Discard, offset, length, |batch| {
            for (start, length) in pieces(offset, to_zero.start - offset, DISCARD_OBJECTS * self.period) {
                batch.discard(0, start, length);
            }
            if !to_zero.is_empty() {
                batch.zero(0, to_zero.start, (to_zero.end - to_zero.start) as usize);
            }
        })?;
        Ok(offset.is_multiple_of(self.period) && to_zero.start.is_multiple_of(self.period))
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let parts: Vec<[&[u8]; 1]> = writes.iter().map(|write| [write.buf]).collect();
        let runs: Vec<WriteRun<'_>> = writes
            .iter()
            .zip(&parts)
            .map(|(write, parts)| WriteRun { offset: write.offset, parts })
            .collect();
        match self.write_runs(&runs).into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        match self.write_runs(&[WriteRun { offset, parts }]).pop() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn write_runs(&self, runs: &[WriteRun<'_>]) -> Vec<(usize, DeviceError)> {
        let mut failed = Vec::new();
        let results = self.run_all(Operation::Write, |batch| {
            for (index, run) in runs.iter().enumerate() {
                match self.check_change(Operation::Write, run.offset, run.length() as u64) {
                    Ok(()) => write_run(batch, index, run),
                    Err(error) => failed.push((index, error)),
                }
            }
        });
        for (index, failure) in results {
            // Several operations of one run may have failed.
            if let Some(run) = runs.get(index).filter(|_| !failed.iter().any(|(known, _)| *known == index)) {
                failed.push((index, self.error(Operation::Write, run.offset, run.length() as u64, failure)));
            }
        }
        failed.sort_by_key(|(index, _)| *index);
        failed
    }

    fn describe(&self) -> String {
        self.image.url().to_string()
    }
}

/// Whether an operation may still be carried out after it failed.
fn leaves_uncertain<'f>(operation: Operation, failures: impl IntoIterator<Item = &'f Failure>) -> bool {
    operation != Operation::Read && failures.into_iter().any(|failure| *failure == Failure::Errno(ETIMEDOUT))
}

/// Starts the operations of a run: as few as the limits allow.
fn write_run<'b>(batch: &mut Batch<'_, 'b>, index: usize, run: &WriteRun<'b>) {
    let (mut offset, mut length, mut slices) = (run.offset, 0, Vec::new());
    let pieces = run.parts.iter().flat_map(|part| part.chunks(PIECE));
    for piece in pieces {
        if length + piece.len() > PIECE || slices.len() == PARTS_MAX {
            batch.write(index, offset, std::mem::take(&mut slices));
            offset += length as u64;
            length = 0;
        }
        slices.push(IoSlice::new(piece));
        length += piece.len();
    }
    if !slices.is_empty() {
        batch.write(index, offset, slices);
    }
}

/// Splits a range at multiples of `unit`.
fn pieces(offset: u64, length: u64, unit: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + length;
    let mut start = offset;
    std::iter::from_fn(move || {
        let piece = start..end.min((start / unit + 1).saturating_mul(unit));
        start = piece.end;
        (!piece.is_empty()).then(|| (piece.start, piece.end - piece.start))
    })
}

#[cfg(test)]
mod tests {
    use base::errno::EIO;

    use super::*;

    /// Only the first failure used to be looked at: after another error and a write without an answer, the device
    /// continued.
    #[test]
    fn every_change_without_an_answer_counts() {
        let failures = [Failure::Errno(EIO), Failure::Short(1), Failure::Errno(ETIMEDOUT)];
        for (operation, failures, expected) in [
            (Operation::Write, &failures[..], true),
            (Operation::Discard, &failures[..], true),
            (Operation::Flush, &failures[2..], true),
            (Operation::Resize, &failures[2..], true),
            (Operation::Write, &failures[..2], false),
            (Operation::Read, &failures[..], false),
        ] {
            assert_eq!(leaves_uncertain(operation, failures), expected, "{operation:?} {failures:?}");
        }
    }

    #[test]
    fn ranges_are_split_at_multiples() {
        let split = |offset, length| pieces(offset, length, 10).collect::<Vec<_>>();
        assert_eq!(split(0, 0), []);
        assert_eq!(split(7, 2), [(7, 2)]);
        assert_eq!(split(7, 16), [(7, 3), (10, 10), (20, 3)]);
        assert_eq!(split(10, 10), [(10, 10)]);
        assert_eq!(split(u64::MAX - 3, 3), [(u64::MAX - 3, 3)]);
    }
}
