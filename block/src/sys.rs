//! System calls on an open file that the standard library does not have.
//!
//! Two of them need `unsafe`, which is why they are in this layer.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{AtFlags, FallocateFlags, SeekFrom, StatxFlags, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// The next range with data at or after an offset, in a file of `size` bytes (`SEEK_DATA`). Files whose file system
/// does not support it have data everywhere, and so do block devices. Moves the position of the descriptor.
///
/// # Errors
/// Errors of the system.
pub fn next_data(file: impl AsFd, offset: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    if offset >= size {
        return Ok(None);
    }
    match seek(&file, SeekFrom::Data(offset)) {
        Ok(start) => {
            let end = seek(&file, SeekFrom::Hole(start))?.min(size);
            Ok((start < end).then_some(start..end))
        }
        // A hole up to the end.
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL) => Ok(Some(offset..size)),
        Err(errno) => Err(errno.into()),
    }
}

/// Deallocates a range of a file, which then reads as zeros. Returns `false` if this is not supported.
pub fn punch_hole(file: &File, offset: u64, length: u64) -> bool {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length).is_ok()
}

/// Zeros a range without writing it. Returns `false` if this is not supported.
pub fn zero_range(file: &File, offset: u64, length: u64) -> bool {
    fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, length).is_ok()
}

/// Discards a range of a block device (`BLKDISCARD`). Errors are ignored, as a discard is only a hint.
pub fn discard_blocks(file: &File, offset: u64, length: u64) {
    /// `_IO(0x12, 119)` of `linux/fs.h`; it takes a pointer to offset and length nevertheless.
    const BLKDISCARD: Opcode = opcode::none(0x12, 119);
    // SAFETY: the call reads two 64-bit numbers through its argument, which points to an array of two.
    let _ = unsafe { ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) };
}

/// Starts writeback of a range and does not wait for it. Errors are ignored: the next flush reports them.
pub fn start_writeback(file: &File, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else { return };
    // SAFETY: the arguments are numbers, and the descriptor is open while `file` is borrowed.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Writes consecutive parts with uncached I/O (`RWF_DONTCACHE`, Linux 6.14) if they are long and `enabled` is set.
/// Returns the number of bytes written: 0 if uncached I/O is not possible. Clears `enabled` if the kernel or the
/// file system does not support it.
///
/// Reusing a few pages is cheaper than filling the page cache with new ones: on a virtual machine whose memory is
/// allocated at the first access, a write took a fifth of the CPU time.
pub fn write_uncached(file: &File, offset: u64, parts: &[IoSlice<'_>], enabled: &AtomicBool) -> usize {
    /// Shorter writes are not worth it.
    const MIN_BYTES: usize = 128 << 10;
    /// `RWF_DONTCACHE` of `linux/fs.h`.
    const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
    if !enabled.load(Relaxed) || parts.iter().map(|part| part.len()).sum::<usize>() < MIN_BYTES {
        return 0;
    }
    match pwritev2(file, parts, offset, DONTCACHE) {
        Ok(written) => written,
        Err(errno) => {
            if matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) {
                enabled.store(false, Relaxed);
            }
            0
        }
    }
}

/// Writes data that is stable on return (`RWF_DSYNC`).
pub fn write_dsync(file: &File, offset: u64, buf: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
        match pwritev2(file, &[IoSlice::new(rest)], offset + done as u64, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // Some network and FUSE file systems do not support flags per write.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                file.write_all_at(rest, offset + done as u64)?;
                return file.sync_data();
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The logical sector size of a block device.
pub fn block_sector_size(file: &File) -> u32 {
    rustix::fs::ioctl_blksszget(file).unwrap_or(512)
}

/// The alignment that the file system requires for direct I/O; 4096, which every device accepts, if unknown.
pub fn direct_alignment(file: &File) -> u32 {
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_dio_offset_align != 0 => stat.stx_dio_offset_align,
        _ => 4096,
    }
}
