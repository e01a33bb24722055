//! Writes to a file that are more than `pwrite`: stable at once, past the page cache's memory, or asked to be on their
//! way to the medium.
//!
//! [`start`] lives here because the call needs `unsafe`, and this layer is where that is at home.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicBool;

/// Asks for it and waits for nothing; whether it happens is the system's affair, and its refusal is nobody's problem: a
/// flush tells what went wrong.
#[cfg(target_os = "linux")]
pub fn start(file: impl AsFd, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else { return };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers alone, and the descriptor is open as long as `file` is borrowed.
    let _ = unsafe { libc::sync_file_range(fd, offset, length, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
pub fn start(_file: impl AsFd, _offset: u64, _length: u64) {}

/// Writes parts that follow each other, if they are long and `passing` says so, by pages that go when they are written
/// (`RWF_DONTCACHE`, Linux 6.14); how many bytes, and none where this does not work. Where the system, or this file
/// system, does not know how, `passing` says so from then on.
///
/// A page that has to be found first costs more than to fill it: on a virtual machine whose memory is not there before
/// it is touched, a write took a fifth of the processor time in this way.
#[cfg(target_os = "linux")]
pub fn long(file: &File, offset: u64, parts: &[IoSlice<'_>], passing: &AtomicBool) -> usize {
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::io::{Errno, ReadWriteFlags};
    /// From this length on a write is worth a call of its own kind.
    const LONG: usize = 128 << 10;
    /// `RWF_DONTCACHE` of `linux/fs.h`.
    const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
    if !passing.load(Relaxed) || parts.iter().map(|part| part.len()).sum::<usize>() < LONG {
        return 0;
    }
    match rustix::io::pwritev2(file, parts, offset, DONTCACHE) {
        Ok(written) => written,
        Err(errno) => {
            if matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) {
                passing.store(false, Relaxed);
            }
            0
        }
    }
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
pub fn long(_file: &File, _offset: u64, _parts: &[IoSlice<'_>], _passing: &AtomicBool) -> usize {
    0
}

/// Writes so that the data is stable on return.
pub fn write_through(file: &File, offset: u64, buf: &[u8]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::io::{Errno, ReadWriteFlags};
        let mut done = 0;
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            let pieces = [io::IoSlice::new(rest)];
            match rustix::io::pwritev2(file, &pieces, offset + done as u64, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                // Some network and FUSE file systems know no per-write flags.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    file.write_all_at(rest, offset + done as u64)?;
                    return file.sync_data();
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
    #[cfg(not(target_os = "linux"))]
    {
        file.write_all_at(buf, offset)?;
        file.sync_data()
    }
}
