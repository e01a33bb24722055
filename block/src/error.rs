//! Errors of a device, with an errno and a message that says what to do.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// An operation of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read of a range.
    Read,
    /// Write of a range.
    Write,
    /// Flush of the whole device; its range is empty.
    Flush,
    /// Discard of a range.
    Discard,
    /// Change of the size; the length is the new one.
    Resize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Resize => "resize",
        })
    }
}

/// An operation that failed. `device` is [`Device::describe`](crate::Device::describe); offsets and lengths are bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// The range is not within the device: mostly because of a truncated image or a damaged pointer.
    PastEnd {
        /// The device.
        device: Box<str>,
        /// The operation.
        operation: Operation,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
        /// Size of the device.
        size: u64,
    },
    /// The file is shorter than when it was opened.
    Shrunk {
        /// The device.
        device: Box<str>,
        /// Start of the read.
        offset: u64,
        /// Length of the read.
        length: u64,
        /// Bytes that were read.
        read: u64,
    },
    /// A write to a device that is read-only.
    ReadOnly {
        /// The device.
        device: Box<str>,
        /// Start of the write.
        offset: u64,
        /// Length of the write.
        length: u64,
    },
    /// A direct write of partial sectors.
    Unaligned {
        /// The device.
        device: Box<str>,
        /// Start of the write.
        offset: u64,
        /// Length of the write.
        length: u64,
        /// Both must be a multiple of this.
        alignment: u32,
    },
    /// An error of the system or of a container.
    Io {
        /// The device.
        device: Box<str>,
        /// The operation.
        operation: Operation,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
        /// The error.
        source: io::Error,
    },
}

impl DeviceError {
    /// The operation that failed.
    pub fn operation(&self) -> Operation {
        match self {
            Self::PastEnd { operation, .. } | Self::Io { operation, .. } => *operation,
            Self::Shrunk { .. } => Operation::Read,
            Self::ReadOnly { .. } | Self::Unaligned { .. } => Operation::Write,
        }
    }

    /// The start of the range in bytes, on the device that failed.
    pub fn offset(&self) -> u64 {
        match self {
            Self::PastEnd { offset, .. }
            | Self::Shrunk { offset, .. }
            | Self::ReadOnly { offset, .. }
            | Self::Unaligned { offset, .. }
            | Self::Io { offset, .. } => *offset,
        }
    }

    /// The length of the range in bytes; 0 for a flush.
    pub fn length(&self) -> u64 {
        match self {
            Self::PastEnd { length, .. }
            | Self::Shrunk { length, .. }
            | Self::ReadOnly { length, .. }
            | Self::Unaligned { length, .. }
            | Self::Io { length, .. } => *length,
        }
    }

    /// The errno that a system call would have returned.
    pub fn errno(&self) -> i32 {
        match self {
            Self::PastEnd { .. } | Self::Shrunk { .. } => Errno::IO.raw_os_error(),
            Self::ReadOnly { .. } => Errno::ROFS.raw_os_error(),
            Self::Unaligned { .. } => Errno::INVAL.raw_os_error(),
            Self::Io { source, .. } => errno_of(source),
        }
    }
}

/// The errno of an [`io::Error`], or `EIO`.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    let stated = || Some(error.get_ref()?.downcast_ref::<ErrnoMessage>()?.errno);
    error.raw_os_error().or_else(stated).unwrap_or(Errno::IO.raw_os_error())
}

/// An errno with a better message than that of the system, as the source of a [`DeviceError::Io`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrnoMessage {
    errno: i32,
    message: Box<str>,
}

impl ErrnoMessage {
    /// `errno` is a number of Linux.
    pub fn new(errno: i32, message: impl Into<Box<str>>) -> Self {
        Self { errno, message: message.into() }
    }
}

impl fmt::Display for ErrnoMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrnoMessage {}

impl From<ErrnoMessage> for io::Error {
    fn from(message: ErrnoMessage) -> Self {
        Self::other(message)
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PastEnd { device, operation, offset, length, size } => write!(
                f,
                "{device}: cannot {operation} {length} bytes at offset {offset}: the device ends at {size} \
                 (the image is truncated, or a pointer to this offset is damaged)"
            ),
            Self::Shrunk { device, offset, length, read } => write!(
                f,
                "{device}: cannot read {length} bytes at offset {offset}: the file ends after {read} of \
                 them (it was truncated while open)"
            ),
            Self::ReadOnly { device, offset, length } => {
                write!(f, "{device}: cannot write {length} bytes at offset {offset}: the device is read-only")
            }
            Self::Unaligned { device, offset, length, alignment } => write!(
                f,
                "{device}: cannot write {length} bytes at offset {offset}: direct I/O requires whole \
                 sectors of {alignment} bytes (open it without direct I/O)"
            ),
            Self::Io { device, operation: Operation::Flush, source, .. } => {
                write!(f, "{device}: cannot flush: {source} (writes since the last flush may be lost)")
            }
            Self::Io { device, operation: Operation::Resize, length, source, .. } => {
                write!(f, "{device}: cannot resize to {length} bytes: {source}")
            }
            Self::Io { device, operation, offset, length, source } => {
                write!(f, "{device}: cannot {operation} {length} bytes at offset {offset}: {source}")
            }
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
