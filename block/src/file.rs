//! Raw image files and block devices, over `pread` and `pwrite`.
//!
//! # Invariants
//! - The size is taken once, at open; a file that somebody else shrinks later gives [`DeviceError::Shrunk`].
//! - With direct I/O every system call has an aligned address, offset and length. Reads of any shape are
//!   widened through a bounce buffer; writes of partial sectors are refused, because widening them
//!   would not be atomic.
//!
//! # Locking
//! None between threads: the file offset is never used. Between processes: `lock`.

use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::aligned::{ALIGNMENT, AlignedBuf};
use crate::device::{Device, Durability, ReadRequest, check_range, refuse_change, write_zeros};
use crate::discard;
use crate::error::{DeviceError, Operation};
use crate::lock::{self, Share};
use crate::loops;
use crate::open_error::OpenError;
use crate::writing;

/// How batches of reads reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Io {
    /// io_uring where the kernel allows it, else `pread`.
    #[default]
    Auto,
    /// `pread` always.
    Pread,
    /// io_uring or an error.
    Uring,
}

/// How to open a file or block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenOptions {
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// How batches of reads reach the kernel.
    pub io: Io,
    /// Open for writing too. A block device that is mounted is then refused.
    pub writable: bool,
    /// Take the advisory exclusive lock when writable. Readers take none.
    pub lock: bool,
    /// Wait so long for another program that has the lock; without it, that is an error at once.
    pub wait: Option<Duration>,
    /// What is written in long runs ([`Device::write_vectored`]: contents of files) does not stay in the page cache,
    /// where the system can do that: for who writes much and reads none of it again. Memory that is used again and
    /// again is faster than memory that is new.
    pub passing: bool,
}

impl Default for OpenOptions {
    /// Read-only, buffered, io_uring where it can be had, locked if made writable.
    fn default() -> Self {
        Self { direct: false, io: Io::Auto, writable: false, lock: true, wait: None, passing: false }
    }
}

/// Direct reads that must be widened go through a buffer of at most this many bytes.
const BOUNCE_MAX: usize = 1 << 20;
/// Neighbouring reads that are joined into one: well below the kernel's limit of 1024, and long enough that
/// the cost of the call no longer counts.
const SEGMENTS_MAX: usize = 64;

/// A raw image file or block device over `pread` and `pwrite`.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: AtomicU64,
    sector_size: u32,
    is_block: bool,
    direct: bool,
    writable: bool,
    /// See [`OpenOptions::passing`]; no longer where the system refused.
    passing: AtomicBool,
    /// It has no name yet, and is gone if the power is: nothing has to be stable before it gets one.
    is_fleeting: AtomicBool,
}

impl FileDevice {
    /// Opens `path`. [`OpenOptions::io`] is not looked at: [`open_file`](crate::open_file) chooses by it.
    ///
    /// # Errors
    /// Each variant of [`OpenError`] that names a path, but [`OpenError::NoUring`].
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let (mut file, metadata) = match options.writable && options.lock {
            true => open_for_writing(path, options)?,
            false => open_unlocked(path, options)?,
        };
        let is_block = metadata.file_type().is_block_device();
        let size = if is_block {
            file.seek(SeekFrom::End(0)).map_err(|error| OpenError::io(path, error))?
        } else {
            metadata.len()
        };
        let sector_size = sector_size(&file, is_block, options.direct);
        let (direct, writable) = (options.direct, options.writable);
        let size = size.into();
        let (path, is_fleeting) = (path.to_owned(), AtomicBool::new(false));
        let passing = options.passing.into();
        Ok(Self { file, path, size, sector_size, is_block, direct, writable, passing, is_fleeting })
    }

    /// A file that was made for this purpose, and that its maker has locked.
    pub(crate) fn over_new(file: File, path: &Path, size: u64, options: &OpenOptions) -> Self {
        let direct = options.direct;
        let sector_size = sector_size(&file, false, direct);
        let (size, passing) = (size.into(), options.passing.into());
        let is_fleeting = AtomicBool::new(true);
        let path = path.to_owned();
        Self { file, path, size, sector_size, is_block: false, direct, writable: true, passing, is_fleeting }
    }

    /// Makes everything stable that was written, and from now on what is asked to be.
    pub(crate) fn settle(&self) -> std::io::Result<()> {
        self.is_fleeting.store(false, Relaxed);
        self.file.sync_all()
    }

    /// The first run of data at or behind a byte; a device, or a file system that does not tell, is all data.
    ///
    /// # Errors
    /// What the system reports.
    pub fn data_behind(&self, from: u64) -> std::io::Result<Option<std::ops::Range<u64>>> {
        let size = self.size();
        if from >= size {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(from)) {
            Ok(start) => {
                let end = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(start))?;
                Ok((start < size).then(|| start..end.min(size)))
            }
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL) => Ok(Some(from..size)),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a block device, whose size nobody can change.
    pub fn is_block_device(&self) -> bool {
        self.is_block
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
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

    /// Direct read of any shape, through a bounce buffer where the shape asks for it.
    fn read_direct(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.is_aligned(offset, buf) {
            let length = buf.len();
            let got = fill(&self.file, offset, buf, self.sector_size)
                .map_err(|e| self.failed(Operation::Read, offset, length, e))?;
            return if got == length { Ok(()) } else { Err(self.shrunk(offset, length, got)) };
        }
        let longest = self.widen(offset, buf.len().min(BOUNCE_MAX)).1 + self.sector_size as usize;
        let mut bounce = AlignedBuf::zeroed(longest);
        let mut at = offset;
        for piece in buf.chunks_mut(BOUNCE_MAX) {
            let (start, length) = self.widen(at, piece.len());
            let skip = (at - start) as usize;
            let window = bounce.get_mut(..length).unwrap_or_default();
            let got = fill(&self.file, start, window, self.sector_size)
                .map_err(|e| self.failed(Operation::Read, start, length, e))?;
            match window.get(skip..skip + piece.len()) {
                Some(source) if got >= skip + piece.len() => piece.copy_from_slice(source),
                _ => return Err(self.shrunk(at, piece.len(), got.saturating_sub(skip))),
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_direct(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
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
            return self.write_exact(offset, buf, how);
        }
        let mut bounce = AlignedBuf::zeroed(buf.len().min(BOUNCE_MAX));
        let mut at = offset;
        for piece in buf.chunks(BOUNCE_MAX) {
            let window = bounce.get_mut(..piece.len()).unwrap_or_default();
            window.copy_from_slice(piece);
            self.write_exact(at, window, how)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_exact(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        match how {
            Durability::Fua if !self.is_fleeting.load(Relaxed) => {
                writing::write_through(&self.file, offset, buf)
            }
            _ => self.file.write_all_at(buf, offset),
        }
        .map_err(|error| self.failed(Operation::Write, offset, buf.len(), error))
    }

    /// Splits sorted reads into groups that one `preadv` can serve: neighbours on the device. A direct read
    /// that needs a bounce buffer stays alone.
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

    /// Whether a transfer must go through an aligned buffer of ours.
    pub(crate) fn needs_bounce(&self, offset: u64, buf: &[u8]) -> bool {
        self.direct && !self.is_aligned(offset, buf)
    }

    /// Reads a group of neighbours with one system call; `false` if it did not come whole.
    fn read_group(&self, group: &mut [&mut ReadRequest<'_>]) -> bool {
        let Some(offset) = group.first().map(|read| read.offset) else { return true };
        let length: usize = group.iter().map(|read| read.buf.len()).sum();
        let mut slices: Vec<_> = group.iter_mut().map(|read| IoSliceMut::new(read.buf)).collect();
        rustix::io::preadv(&self.file, &mut slices, offset).is_ok_and(|got| got == length)
    }

    pub(crate) fn failed(
        &self,
        what: Operation,
        offset: u64,
        length: usize,
        source: io::Error,
    ) -> DeviceError {
        DeviceError::Io { device: self.describe().into(), what, offset, length: length as u64, source }
    }

    pub(crate) fn shrunk(&self, offset: u64, length: usize, got: usize) -> DeviceError {
        let (length, got) = (length as u64, got as u64);
        DeviceError::Shrunk { device: self.describe().into(), offset, length, got }
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

    fn look_again(&self) -> Result<u64, DeviceError> {
        // Of a file and of a block device alike. Nobody else moves where this is.
        let size =
            rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0)).map_err(|errno| DeviceError::Io {
                device: self.describe().into(),
                what: Operation::Resize,
                offset: 0,
                length: 0,
                source: errno.into(),
            })?;
        // One that became smaller is met where it is used.
        Ok(self.size.fetch_max(size, Relaxed).max(size))
    }

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        refuse_change(self, 0, 0)?;
        // That of a block device is refused by the system.
        let failed = |source| DeviceError::Io {
            device: self.describe().into(),
            what: Operation::Resize,
            offset: 0,
            length: size,
            source,
        };
        self.file.set_len(size).map_err(failed)?;
        self.size.store(size, Relaxed);
        Ok(())
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
        let got =
            fill(&self.file, offset, buf, 1).map_err(|e| self.failed(Operation::Read, offset, length, e))?;
        if got == length { Ok(()) } else { Err(self.shrunk(offset, length, got)) }
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        if !self.writable {
            let length = buf.len() as u64;
            return Err(DeviceError::ReadOnly { device: self.describe().into(), offset, length });
        }
        check_range(self, Operation::Write, offset, buf.len())?;
        if self.direct { self.write_direct(offset, buf, how) } else { self.write_exact(offset, buf, how) }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.is_fleeting.load(Relaxed) {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| self.failed(Operation::Flush, 0, 0, error))
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        for read in reads.iter() {
            check_range(self, Operation::Read, read.offset, read.buf.len())?;
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
        refuse_change(self, offset, length)?;
        if length == 0 || punch(&self.file, offset, length) || zero_range(&self.file, offset, length) {
            return Ok(());
        }
        write_zeros(self, offset, length)
    }

    /// Punches a hole into a file. Of a block device the kernel is told only that nobody wants the range, without a
    /// promise of zeros.
    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        refuse_change(self, offset, length)?;
        if self.is_block {
            discard::block_device(&self.file, offset, length);
            return Ok(false);
        }
        Ok(length == 0 || punch(&self.file, offset, length))
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let one_by_one = || {
            let mut at = offset;
            parts.iter().try_for_each(|part| {
                self.write_at(at, part, Durability::Buffered)?;
                at = at.saturating_add(part.len() as u64);
                Ok(())
            })
        };
        let length = parts.iter().map(|part| part.len()).sum();
        check_range(self, Operation::Write, offset, length)?;
        let lies_well = parts.iter().all(|part| !self.needs_bounce(offset, part));
        if !lies_well || !self.writable {
            return one_by_one();
        }
        let slices: Vec<_> = parts.iter().map(|part| io::IoSlice::new(part)).collect();
        if writing::long(&self.file, offset, &slices, &self.passing) == length {
            return Ok(());
        }
        if parts.len() < 2 {
            return one_by_one();
        }
        // What did not come whole is written once more: that gives the rest, or the error with its place.
        match rustix::io::pwritev(&self.file, &slices, offset) {
            Ok(written) if written == length => Ok(()),
            _ => one_by_one(),
        }
    }

    fn start_writing(&self, offset: u64, length: u64) {
        if !self.direct {
            writing::start(&self.file, offset, length);
        }
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

/// The reads in the order of the device; the caller's slice keeps its own.
pub(crate) fn sort_reads<'r, 'b>(reads: &'r mut [ReadRequest<'b>]) -> Vec<&'r mut ReadRequest<'b>> {
    let mut sorted: Vec<_> = reads.iter_mut().collect();
    sorted.sort_by_key(|read| read.offset);
    sorted
}

/// Reads until `buf` is full or the file ends; returns the bytes read. `unit` is the granularity at which
/// a read may be continued after the kernel returned less than was asked.
fn fill(file: &File, offset: u64, buf: &mut [u8], unit: u32) -> io::Result<usize> {
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

/// Frees a range of a file, or of a device that then reads as zeros; `false` where the system cannot.
#[cfg(target_os = "linux")]
fn punch(file: &File, offset: u64, length: u64) -> bool {
    use rustix::fs::{FallocateFlags, fallocate};
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length).is_ok()
}

/// Zeros a range without moving bytes; `false` where the system cannot.
#[cfg(target_os = "linux")]
fn zero_range(file: &File, offset: u64, length: u64) -> bool {
    use rustix::fs::{FallocateFlags, fallocate};
    fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, length).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn punch(_file: &File, _offset: u64, _length: u64) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn zero_range(_file: &File, _offset: u64, _length: u64) -> bool {
    false
}

/// Only regular files and block devices have a size and random access. Refused before `open`, which would
/// block on a fifo.
fn refuse_other_kinds(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    let kind = metadata.file_type();
    let name = if kind.is_file() || kind.is_block_device() {
        return Ok(());
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "fifo"
    } else if kind.is_socket() {
        "socket"
    } else {
        "character device"
    };
    Err(OpenError::NotADevice { path: path.to_owned(), kind: name })
}

fn open_unlocked(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), OpenError> {
    let metadata = std::fs::metadata(path).map_err(|error| OpenError::io(path, error))?;
    refuse_other_kinds(path, &metadata)?;
    let file = open_descriptor(path, options, metadata.file_type().is_block_device())?;
    // Looked at again through the descriptor: the path may have been replaced in between.
    let metadata = file.metadata().map_err(|error| OpenError::io(path, error))?;
    refuse_other_kinds(path, &metadata)?;
    Ok((file, metadata))
}

/// Opens an image for writing, takes the lock and places the mark of a writer. If another file is put in its place
/// before the lock is held, that file is opened.
fn open_for_writing(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), OpenError> {
    let deadline = lock::deadline(options.wait);
    let mut in_turn = false;
    loop {
        let (file, metadata) = match open_unlocked(path, options) {
            // Another writer of ours has claimed it, or somebody who knows of no lock. The writer may be gone by now:
            // it is tried once more.
            Err(OpenError::InUse { .. }) if !in_turn => {
                in_turn = !lock::wait_for_claim(path, deadline)?;
                continue;
            }
            opened => opened?,
        };
        lock::take(&file, path, Share::Nobody, deadline)?;
        if !lock::is_still(path, &metadata) {
            continue;
        }
        if let Some(device) = loops::writer_over(&metadata) {
            return Err(OpenError::Looped { path: path.to_owned(), device });
        }
        match lock::mark_writer(&file, path) {
            Ok(()) => return Ok((file, metadata)),
            Err(refused) => lock::wait_for_qemu(file, refused, deadline)?,
        }
    }
}

fn open_descriptor(path: &Path, options: &OpenOptions, is_block: bool) -> Result<File, OpenError> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= if options.writable { OFlags::RDWR } else { OFlags::RDONLY };
    if options.direct {
        flags |= OFlags::DIRECT;
    }
    if options.writable && is_block {
        // On a block device this means: refuse if it is mounted or claimed.
        flags |= OFlags::EXCL;
    }
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(descriptor) => Ok(File::from(descriptor)),
        Err(Errno::INVAL) if options.direct => {
            Err(OpenError::DirectRefused { path: path.to_owned(), source: Errno::INVAL.into() })
        }
        Err(Errno::BUSY) if is_block => Err(OpenError::InUse { path: path.to_owned() }),
        Err(errno) => Err(OpenError::io(path, errno)),
    }
}

/// 512 or 4096. For direct I/O on a file it is what the file system below asks for.
fn sector_size(file: &File, is_block: bool, direct: bool) -> u32 {
    let asked = if is_block {
        block_sector_size(file)
    } else if direct {
        direct_alignment(file)
    } else {
        512
    };
    if asked <= 512 { 512 } else { 4096 }
}

#[cfg(target_os = "linux")]
fn block_sector_size(file: &File) -> u32 {
    rustix::fs::ioctl_blksszget(file).unwrap_or(512)
}

#[cfg(not(target_os = "linux"))]
fn block_sector_size(_file: &File) -> u32 {
    512
}

/// What the file system says; 4096, which satisfies every device, where it does not say.
#[cfg(target_os = "linux")]
fn direct_alignment(file: &File) -> u32 {
    use rustix::fs::{AtFlags, StatxFlags};
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_dio_offset_align != 0 => stat.stx_dio_offset_align,
        _ => 4096,
    }
}

#[cfg(not(target_os = "linux"))]
fn direct_alignment(_file: &File) -> u32 {
    4096
}
