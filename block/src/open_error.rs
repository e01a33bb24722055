//! Why an image could not be opened, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{DeviceError, errno_of};

/// A device or image that could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused: no such file, no permission, and so on.
    Io {
        /// The path as given.
        path: PathBuf,
        /// The error as reported.
        source: io::Error,
    },
    /// A directory, a fifo, a socket or a character device.
    NotADevice {
        /// The path as given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file system that holds the image does not support direct I/O.
    DirectRefused {
        /// The path as given.
        path: PathBuf,
        /// The error as reported.
        source: io::Error,
    },
    /// Another program holds the lock for writing.
    Locked {
        /// The path as given.
        path: PathBuf,
    },
    /// A block device that is mounted, or that another driver has claimed.
    InUse {
        /// The path as given.
        path: PathBuf,
    },
    /// io_uring was asked for by name and cannot be had.
    NoUring {
        /// The path as given.
        path: PathBuf,
        /// Why the kernel, or this build, refuses it.
        source: io::Error,
    },
    /// The opened device failed while its contents were looked at.
    Device(DeviceError),
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }

    /// The errno that a system call would have returned.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io { source, .. } | Self::DirectRefused { source, .. } | Self::NoUring { source, .. } => {
                errno_of(source)
            }
            Self::NotADevice { .. } => Errno::NOTBLK.raw_os_error(),
            Self::Locked { .. } => Errno::AGAIN.raw_os_error(),
            Self::InUse { .. } => Errno::BUSY.raw_os_error(),
            Self::Device(error) => error.errno(),
        }
    }
}

impl From<DeviceError> for OpenError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: cannot open: {source}", path.display()),
            Self::NotADevice { path, kind } => {
                write!(f, "{}: this is a {kind}, not an image file or a block device", path.display())
            }
            Self::DirectRefused { path, source } => write!(
                f,
                "{}: the file system that holds it refuses direct I/O: {source} (open it without direct I/O)",
                path.display()
            ),
            Self::Locked { path } => {
                write!(
                    f,
                    "{}: another program has it open for writing (wait for it to finish)",
                    path.display()
                )
            }
            Self::InUse { path } => write!(
                f,
                "{}: the device is mounted or claimed by another driver (unmount it before writing)",
                path.display()
            ),
            Self::NoUring { path, source } => write!(
                f,
                "{}: io_uring cannot be used: {source} (let the program choose, or ask for pread)",
                path.display()
            ),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::DirectRefused { source, .. } | Self::NoUring { source, .. } => {
                Some(source)
            }
            Self::Device(error) => std::error::Error::source(error),
            Self::NotADevice { .. } | Self::Locked { .. } | Self::InUse { .. } => None,
        }
    }
}
