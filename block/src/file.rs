//! Raw image files and block devices, over `pread` and `pwrite` or io_uring.
//!
//! # Invariants
//! - The size is read once, at open; a file that is truncated later gives [`DeviceError::Shrunk`].
//! - With direct I/O every system call has an aligned address, offset and length. Other reads are widened and go
//!   through a bounce buffer. Writes of partial sectors are refused, as widening them would not be atomic.
//!
//! # Locking
//! None between threads: the file offset is not used. Between processes: `lock`.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::aligned::{ALIGNMENT, AlignedBuf};
use crate::device::{
    Device, Durability, ReadRequest, WriteRequest, WriteRun, check_range, check_write, write_each,
    write_each_run, write_parts, write_zeros,
};
use crate::error::{DeviceError, Operation};
use crate::open::{self, Io, OpenOptions};
use crate::open_error::OpenError;
use crate::sys;
use crate::uring::Rings;

/// Size of the bounce buffer for direct I/O.
const BOUNCE_MAX: usize = 1 << 20;
/// Maximum number of adjacent reads that are merged: well below the kernel's limit of 1024, and enough that the cost of
/// the system call does not matter.
const SEGMENTS_MAX: usize = 64;

/// A raw image file or block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: AtomicU64,
    sector_size: u32,
    is_block: bool,
    direct: bool,
    writable: bool,
    /// See [`OpenOptions::uncached`]; cleared if the system does not support it.
    uncached: AtomicBool,
    /// The file has no name yet and does not survive a power cut: writes and flushes need not be stable.
    is_temporary: AtomicBool,
    /// For batches of reads and writes, unless [`OpenOptions::io`] excludes them.
    rings: Option<Rings>,
}

impl FileDevice {
    /// Opens `path`. Containers and partitions are not examined: see [`open_image`](crate::open_image).
    ///
    /// # Errors
    /// Each variant of [`OpenError`] that names a path.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let (mut file, metadata) = open::open(path, options)?;
        let is_block = metadata.file_type().is_block_device();
        let size = if is_block {
            file.seek(SeekFrom::End(0)).map_err(|error| OpenError::io(path, error))?
        } else {
            metadata.len()
        };
        let rings = match options.io {
            Io::Pread => None,
            Io::Auto => Rings::new().ok(),
            Io::Uring => match Rings::new() {
                Ok(rings) => Some(rings),
                Err(source) => return Err(OpenError::NoUring { path: path.to_owned(), source }),
            },
        };
        Ok(Self {
            sector_size: sector_size(&file, is_block, options.direct),
            file,
            path: path.to_owned(),
            size: size.into(),
            is_block,
            direct: options.direct,
            writable: options.writable,
            uncached: options.uncached.into(),
            is_temporary: false.into(),
            rings,
        })
    }

    /// A new file without a name, which the caller has locked. [`OpenOptions::io`] is ignored.
    pub(crate) fn temporary(file: File, path: &Path, size: u64, options: &OpenOptions) -> Self {
        Self {
            sector_size: sector_size(&file, false, options.direct),
            file,
            path: path.to_owned(),
            size: size.into(),
            is_block: false,
            direct: options.direct,
            writable: true,
            uncached: options.uncached.into(),
            is_temporary: true.into(),
            rings: None,
        }
    }

    /// Makes a temporary file stable, and from now on each write and flush that asks for it.
    pub(crate) fn make_stable(&self) -> io::Result<()> {
        self.is_temporary.store(false, Relaxed);
        self.file.sync_all()
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The smallest aligned range around `offset..offset + length`.
    fn widen(&self, offset: u64, length: usize) -> (u64, usize) {
        let unit = u64::from(self.sector_size);
        let start = offset - offset % unit;
        let end = (offset + length as u64).next_multiple_of(unit);
        (start, (end - start) as usize)
    }

    fn is_aligned(&self, offset: u64, buf: &[u8]) -> bool {
        let unit = u64::from(self.sector_size);
        offset.is_multiple_of(unit)
            && (buf.len() as u64).is_multiple_of(unit)
            && (buf.as_ptr() as usize).is_multiple_of(ALIGNMENT)
    }

    /// Direct read, through a bounce buffer if it is not aligned.
    fn read_direct(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.is_aligned(offset, buf) {
            let length = buf.len();
            let read = read_up_to(&self.file, offset, buf, self.sector_size)
                .map_err(|error| self.error(Operation::Read, offset, length, error))?;
            return if read == length { Ok(()) } else { Err(self.shrunk(offset, length, read)) };
        }
        let capacity = self.widen(offset, buf.len().min(BOUNCE_MAX)).1 + self.sector_size as usize;
        let mut bounce = AlignedBuf::zeroed(capacity);
        let mut offset = offset;
        for piece in buf.chunks_mut(BOUNCE_MAX) {
            let (start, length) = self.widen(offset, piece.len());
            let skip = (offset - start) as usize;
            let bounce = bounce.get_mut(..length).unwrap_or_default();
            let read = read_up_to(&self.file, start, bounce, self.sector_size)
                .map_err(|error| self.error(Operation::Read, start, length, error))?;
            match bounce.get(skip..skip + piece.len()) {
                Some(source) if read >= skip + piece.len() => piece.copy_from_slice(source),
                _ => return Err(self.shrunk(offset, piece.len(), read.saturating_sub(skip))),
            }
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn write_direct(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let unit = u64::from(self.sector_size);
        if !offset.is_multiple_of(unit) || !(buf.len() as u64).is_multiple_of(unit) {
            return Err(DeviceError::Unaligned {
                device: self.describe().into(),
                offset,
                length: buf.len() as u64,
                alignment: self.sector_size,
            });
        }
        if self.is_aligned(offset, buf) {
            return self.write_all(offset, buf, durability);
        }
        let mut bounce = AlignedBuf::zeroed(buf.len().min(BOUNCE_MAX));
        let mut offset = offset;
        for piece in buf.chunks(BOUNCE_MAX) {
            let bounce = bounce.get_mut(..piece.len()).unwrap_or_default();
            bounce.copy_from_slice(piece);
            self.write_all(offset, bounce, durability)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn write_all(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        match durability {
            Durability::Fua if !self.is_temporary.load(Relaxed) => sys::write_dsync(&self.file, offset, buf),
            _ => self.file.write_all_at(buf, offset),
        }
        .map_err(|error| self.error(Operation::Write, offset, buf.len(), error))
    }

    /// Splits sorted reads into groups of adjacent ones, for one `preadv` each. A direct read that needs a bounce
    /// buffer is a group of its own.
    pub(crate) fn group_reads<'s, 'r, 'b>(
        &self,
        sorted: &'s mut [&'r mut ReadRequest<'b>],
    ) -> impl Iterator<Item = &'s mut [&'r mut ReadRequest<'b>]> {
        sorted
            .chunk_by_mut(|a, b| {
                a.offset + a.buf.len() as u64 == b.offset
                    && !self.needs_bounce(a.offset, a.buf)
                    && !self.needs_bounce(b.offset, b.buf)
            })
            .flat_map(|group| group.chunks_mut(SEGMENTS_MAX))
    }

    /// Whether a transfer must go through the bounce buffer.
    pub(crate) fn needs_bounce(&self, offset: u64, buf: &[u8]) -> bool {
        self.direct && !self.is_aligned(offset, buf)
    }

    /// Reads adjacent requests with one system call; returns `false` if it was not complete.
    fn read_group(&self, group: &mut [&mut ReadRequest<'_>]) -> bool {
        let Some(offset) = group.first().map(|read| read.offset) else { return true };
        let length: usize = group.iter().map(|read| read.buf.len()).sum();
        let mut slices: Vec<_> = group.iter_mut().map(|read| IoSliceMut::new(read.buf)).collect();
        rustix::io::preadv(&self.file, &mut slices, offset).is_ok_and(|read| read == length)
    }

    fn error(&self, operation: Operation, offset: u64, length: usize, source: io::Error) -> DeviceError {
        DeviceError::Io { device: self.describe().into(), operation, offset, length: length as u64, source }
    }

    fn shrunk(&self, offset: u64, length: usize, read: usize) -> DeviceError {
        let (length, read) = (length as u64, read as u64);
        DeviceError::Shrunk { device: self.describe().into(), offset, length, read }
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    fn refresh_size(&self) -> Result<u64, DeviceError> {
        // For a file and a block device alike. Nothing else uses the file position.
        let size = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| self.error(Operation::Resize, 0, 0, errno.into()))?;
        // If it has become smaller, access to the missing part fails.
        Ok(self.size.fetch_max(size, Relaxed).max(size))
    }

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        check_write(self, 0, 0)?;
        // The system refuses it for a block device.
        self.file.set_len(size).map_err(|error| self.error(Operation::Resize, 0, size as usize, error))?;
        self.size.store(size, Relaxed);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DeviceError> {
        sys::next_data(&self.file, offset, self.size())
            .map_err(|error| self.error(Operation::Read, offset, 0, error))
    }

    fn logical_sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_read_only(&self) -> bool {
        !self.writable
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, buf.len())?;
        if self.direct {
            return self.read_direct(offset, buf);
        }
        let length = buf.len();
        let read = read_up_to(&self.file, offset, buf, 1)
            .map_err(|error| self.error(Operation::Read, offset, length, error))?;
        if read == length { Ok(()) } else { Err(self.shrunk(offset, length, read)) }
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        check_write(self, offset, buf.len() as u64)?;
        match self.direct {
            true => self.write_direct(offset, buf, durability),
            false => self.write_all(offset, buf, durability),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.is_temporary.load(Relaxed) {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| self.error(Operation::Flush, 0, 0, error))
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        for read in reads.iter() {
            check_range(self, Operation::Read, read.offset, read.buf.len())?;
        }
        if let Some(rings) = &self.rings {
            return rings.read_many(self, reads);
        }
        let mut sorted = sort_reads(reads);
        for group in self.group_reads(&mut sorted) {
            if group.len() == 1 || !self.read_group(group) {
                group.iter_mut().try_for_each(|read| self.read_at(read.offset, read.buf))?;
            }
        }
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        check_write(self, offset, length)?;
        let zeroed = length == 0
            || sys::punch_hole(&self.file, offset, length)
            || sys::zero_range(&self.file, offset, length);
        if zeroed { Ok(()) } else { write_zeros(self, offset, length) }
    }

    /// Punches a hole into a file. A discarded range of a block device does not necessarily read as zeros.
    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        check_write(self, offset, length)?;
        if self.is_block {
            sys::discard_blocks(&self.file, offset, length);
            return Ok(false);
        }
        Ok(length == 0 || sys::punch_hole(&self.file, offset, length))
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        match &self.rings {
            Some(rings) if self.writable => rings.write_many(self, writes),
            _ => write_each(self, writes),
        }
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let length = parts.iter().map(|part| part.len()).sum();
        check_range(self, Operation::Write, offset, length)?;
        if !self.writable || parts.iter().any(|part| self.needs_bounce(offset, part)) {
            return write_parts(self, offset, parts);
        }
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        if sys::write_uncached(&self.file, offset, &slices, &self.uncached) == length {
            return Ok(());
        }
        if parts.len() < 2 {
            return write_parts(self, offset, parts);
        }
        // After an incomplete write everything is written again: that completes it, or gives the error and its offset.
        match rustix::io::pwritev(&self.file, &slices, offset) {
            Ok(written) if written == length => Ok(()),
            _ => write_parts(self, offset, parts),
        }
    }

    fn write_runs(&self, runs: &[WriteRun<'_>]) -> Vec<(usize, DeviceError)> {
        // Writes into the page cache do not wait for the medium.
        let done = match &self.rings {
            Some(rings) if self.direct && self.writable => rings.write_runs(self, runs),
            _ => Vec::new(),
        };
        let is_done = |index: usize| done.get(index).copied().unwrap_or(false);
        write_each_run(self, runs.iter().enumerate().filter(|(index, _)| !is_done(*index)))
    }

    fn start_writeback(&self, offset: u64, length: u64) {
        if !self.direct {
            sys::start_writeback(&self.file, offset, length);
        }
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

/// The reads in the order of their offsets; the caller's slice keeps its order.
pub(crate) fn sort_reads<'r, 'b>(reads: &'r mut [ReadRequest<'b>]) -> Vec<&'r mut ReadRequest<'b>> {
    let mut sorted: Vec<_> = reads.iter_mut().collect();
    sorted.sort_by_key(|read| read.offset);
    sorted
}

/// Reads until `buf` is full or the file ends; returns the number of bytes read. A short read can be continued at
/// multiples of `unit`.
fn read_up_to(file: &File, offset: u64, buf: &mut [u8], unit: u32) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                if !done.is_multiple_of(unit as usize) {
                    break; // Direct I/O stops within a sector only at the end of the file.
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// 512 or 4096. For direct I/O on a file it is the alignment that the file system requires.
fn sector_size(file: &File, is_block: bool, direct: bool) -> u32 {
    let required = if is_block {
        sys::block_sector_size(file)
    } else if direct {
        sys::direct_alignment(file)
    } else {
        512
    };
    if required <= 512 { 512 } else { 4096 }
}
