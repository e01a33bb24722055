//! Opening and locking the file of a [`FileDevice`](crate::FileDevice).

use std::fs::{File, Metadata};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::lock::{self, LockMode};
use crate::loop_devices;
use crate::open_error::OpenError;

/// How batches of reads and writes reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Io {
    /// io_uring if the kernel allows it, else `pread` and `pwrite`.
    #[default]
    Auto,
    /// `pread` and `pwrite`.
    Pread,
    /// io_uring, or an error.
    Uring,
}

/// How to open a file or block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenOptions {
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// How batches of reads and writes reach the kernel.
    pub io: Io,
    /// Open for writing. A mounted block device is refused.
    pub writable: bool,
    /// Take the advisory exclusive lock if writable. Readers take none.
    pub lock: bool,
    /// How long to wait for another program that has the lock; by default that is an error at once.
    pub wait: Option<Duration>,
    /// Use uncached I/O (`RWF_DONTCACHE`) for long vectored writes, if the system supports it: for programs that write
    /// much and do not read it again. Memory that is reused is faster than new memory.
    pub uncached: bool,
}

impl Default for OpenOptions {
    /// Read-only, buffered, with io_uring if available; locked if made writable.
    fn default() -> Self {
        Self { direct: false, io: Io::Auto, writable: false, lock: true, wait: None, uncached: false }
    }
}

/// Opens a file, and locks it if the options say so.
pub fn open(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), OpenError> {
    match options.writable && options.lock {
        true => open_for_writing(path, options),
        false => open_unlocked(path, options),
    }
}

fn open_unlocked(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), OpenError> {
    let metadata = std::fs::metadata(path).map_err(|error| OpenError::io(path, error))?;
    check_file_type(path, &metadata)?;
    let file = open_descriptor(path, options, metadata.file_type().is_block_device())?;
    // Checked again on the descriptor: the path may have been replaced in between.
    let metadata = file.metadata().map_err(|error| OpenError::io(path, error))?;
    check_file_type(path, &metadata)?;
    Ok((file, metadata))
}

/// Opens an image for writing, takes the lock and places the writer's mark. If another file gets the name before the
/// lock is taken, that file is opened.
fn open_for_writing(path: &Path, options: &OpenOptions) -> Result<(File, Metadata), OpenError> {
    let deadline = lock::deadline(options.wait);
    let mut retried_at_once = false;
    loop {
        let (file, metadata) = match open_unlocked(path, options) {
            // The block device is claimed by a writer that has the lock, or by a program without locks. A writer may
            // have closed it by now, so that one more attempt is made without waiting.
            Err(OpenError::InUse { .. }) if !retried_at_once => {
                retried_at_once = !lock::wait_for_claim(path, deadline)?;
                continue;
            }
            opened => opened?,
        };
        lock::lock(&file, path, LockMode::Exclusive, deadline)?;
        if !lock::is_at_path(path, &metadata) {
            continue;
        }
        if let Some(device) = loop_devices::writable_loop_device(&metadata) {
            return Err(OpenError::Looped { path: path.to_owned(), device });
        }
        match lock::mark_writer(&file, path) {
            Ok(()) => return Ok((file, metadata)),
            Err(error) => lock::wait_for_qemu(file, error, deadline)?,
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
        // On a block device this means: fail if it is mounted or claimed.
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

/// Refuses everything but regular files and block devices: only these have a size and random access. Checked before
/// `open`, which would block on a fifo.
fn check_file_type(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    let file_type = metadata.file_type();
    let name = if file_type.is_file() || file_type.is_block_device() {
        return Ok(());
    } else if file_type.is_dir() {
        "directory"
    } else if file_type.is_fifo() {
        "fifo"
    } else if file_type.is_socket() {
        "socket"
    } else {
        "character device"
    };
    Err(OpenError::NotADevice { path: path.to_owned(), file_type: name })
}
