//! What can go wrong with a device, worded as help, each with an errno for front ends that need one.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// What was being done when a device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read of a byte range.
    Read,
    /// A write of a byte range.
    Write,
    /// A flush of the whole device; its range is empty.
    Flush,
    /// A change of its size; the length is the new one.
    Resize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Resize => "resize",
        })
    }
}

/// A transfer that failed. `device` is [`Device::describe`](crate::Device::describe); offsets and lengths are bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// The range does not lie within the device: mostly an image cut short, or a damaged pointer.
    PastEnd {
        /// The device.
        device: Box<str>,
        /// Read or write.
        what: Operation,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
        /// Size of the device.
        size: u64,
    },
    /// The file ended before the size that it had when it was opened.
    Shrunk {
        /// The device.
        device: Box<str>,
        /// Start of the read.
        offset: u64,
        /// Length of the read.
        length: u64,
        /// How many of these bytes were still there.
        got: u64,
    },
    /// A write to a device that was opened read-only, or that can only be read.
    ReadOnly {
        /// The device.
        device: Box<str>,
        /// Start of the write.
        offset: u64,
        /// Length of the write.
        length: u64,
    },
    /// A direct write whose range is not made of whole sectors.
    Unaligned {
        /// The device.
        device: Box<str>,
        /// Start of the write.
        offset: u64,
        /// Length of the write.
        length: u64,
        /// The unit that both must be a multiple of.
        alignment: u32,
    },
    /// The system, or a container above it, reported an error.
    Io {
        /// The device.
        device: Box<str>,
        /// What failed.
        what: Operation,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
        /// The error as reported.
        source: io::Error,
    },
}

impl DeviceError {
    /// What was being done.
    pub fn what(&self) -> Operation {
        match self {
            Self::PastEnd { what, .. } | Self::Io { what, .. } => *what,
            Self::Shrunk { .. } => Operation::Read,
            Self::ReadOnly { .. } | Self::Unaligned { .. } => Operation::Write,
        }
    }

    /// The start of the range in bytes, as the failing device counts them.
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

/// The errno inside an [`io::Error`], `EIO` where it carries none.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PastEnd { device, what, offset, length, size } => write!(
                f,
                "{device}: cannot {what} {length} bytes at offset {offset}: the device ends at {size} \
                 (the image is cut short, or a pointer to this place is damaged)"
            ),
            Self::Shrunk { device, offset, length, got } => write!(
                f,
                "{device}: cannot read {length} bytes at offset {offset}: the file now ends after {got} of \
                 them (it was truncated while open)"
            ),
            Self::ReadOnly { device, offset, length } => {
                write!(f, "{device}: cannot write {length} bytes at offset {offset}: the device is read-only")
            }
            Self::Unaligned { device, offset, length, alignment } => write!(
                f,
                "{device}: cannot write {length} bytes at offset {offset}: direct I/O writes whole \
                 sectors of {alignment} bytes (open it without direct I/O)"
            ),
            Self::Io { device, what: Operation::Flush, source, .. } => {
                write!(f, "{device}: cannot flush: {source} (writes since the last flush may be lost)")
            }
            Self::Io { device, what: Operation::Resize, length, source, .. } => {
                write!(f, "{device}: its size cannot be changed to {length} bytes: {source}")
            }
            Self::Io { device, what, offset, length, source } => {
                write!(f, "{device}: cannot {what} {length} bytes at offset {offset}: {source}")
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
