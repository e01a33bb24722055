//! The error of the library's calls: a message that says what to do, and the errno of a system call.

use std::fmt;

use base::errno::{self, Errno};
use block::DeviceError;
use error::Error as EngineError;
use journal::LogError;

use crate::image::ImageError;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Reading or changing the volume failed.
    Operation(EngineError),
    /// The image cannot be opened.
    Image(Box<ImageError>),
}

impl Error {
    /// Returns the error for a request that is invalid for this file or volume.
    pub(crate) const fn refused(errno: Errno, why: &'static str) -> Self {
        Self::Operation(EngineError::Refused { errno, why })
    }

    /// Returns the error for a volume or a device that cannot be written. `EROFS`.
    #[cold]
    pub(crate) fn unwritable(why: String) -> Self {
        Self::Operation(EngineError::Unusable { errno: errno::EROFS, why: why.into() })
    }

    /// Returns whether the device failed, not the volume on it: the errno is that of the system below.
    pub fn is_of_device(&self) -> bool {
        matches!(self, Self::Operation(EngineError::Device(_)))
    }

    /// Returns the errno that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Operation(error) => error.errno(),
            Self::Image(error) => error.errno(),
        }
    }
}

impl backing::no_space::NoSpace for Error {
    fn is_no_space(&self) -> bool {
        self.errno() == errno::ENOSPC
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::Operation(error)
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Self::Operation(error.into())
    }
}

impl From<ImageError> for Error {
    fn from(error: ImageError) -> Self {
        Self::Image(error.into())
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Operation(error.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            Self::Image(error) => error.fmt(f),
        }
    }
}

/// The message contains all causes, so there is no source.
impl std::error::Error for Error {}
