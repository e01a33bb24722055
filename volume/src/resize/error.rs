//! Why a volume cannot be resized.

use std::fmt;

use base::errno::{self, Errno};

use crate::Error;

const LARGER: &str = "the new size is larger than the volume: grow it instead";

/// Why [`grow`](super::grow) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum GrowError {
    /// The volume cannot be opened.
    Open(Error),
    /// [`Volume::grow`](crate::Volume::grow) failed. The sizes, in bytes, say why it may have.
    Grow {
        /// The cause.
        error: Error,
        /// The new size.
        requested: u64,
        /// Size of the volume.
        current: u64,
        /// Size of the device.
        available: u64,
    },
    /// The volume cannot be unmounted.
    Unmount(Error),
}

impl GrowError {
    /// Returns the error of the volume.
    pub fn cause(&self) -> &Error {
        match self {
            Self::Open(error) | Self::Grow { error, .. } | Self::Unmount(error) => error,
        }
    }

    /// Returns the errno that a system call would return.
    pub fn errno(&self) -> Errno {
        self.cause().errno()
    }
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)
    }
}

/// The message contains all causes, so there is no source.
impl std::error::Error for GrowError {}

impl From<GrowError> for Error {
    fn from(error: GrowError) -> Self {
        match error {
            GrowError::Open(error) | GrowError::Grow { error, .. } | GrowError::Unmount(error) => error,
        }
    }
}

/// Why [`shrink`](super::shrink) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShrinkError {
    /// The new size is larger than the volume. The log is clean, and nothing else was changed.
    Larger,
    /// Blocks to be removed are in use.
    InUse {
        /// Minimum size in blocks.
        min_blocks: u64,
    },
    /// The volume cannot be opened, changed or unmounted.
    Volume(Error),
}

impl ShrinkError {
    /// Returns the errno that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Larger => errno::EINVAL,
            Self::InUse { .. } => errno::ENOSPC,
            Self::Volume(error) => error.errno(),
        }
    }
}

impl fmt::Display for ShrinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Larger => f.write_str(LARGER),
            Self::InUse { min_blocks } => {
                write!(f, "blocks at the end of the volume are in use: the minimum is {min_blocks} blocks")
            }
            Self::Volume(error) => error.fmt(f),
        }
    }
}

/// The message contains all causes, so there is no source.
impl std::error::Error for ShrinkError {}

impl From<Error> for ShrinkError {
    fn from(error: Error) -> Self {
        Self::Volume(error)
    }
}

impl From<ShrinkError> for Error {
    fn from(error: ShrinkError) -> Self {
        match error {
            ShrinkError::Volume(error) => error,
            ShrinkError::Larger => Self::refused(errno::EINVAL, LARGER),
            ShrinkError::InUse { .. } => {
                let what = "shrinking the volume: blocks at its end are in use";
                error::Error::NoSpace { what }.into()
            }
        }
    }
}
