//! What can go wrong with a volume, worded as help, each with the errno of a system call.

use std::fmt;

use base::errno;
use block::DeviceError;
use journal::LogError;
use journal::engine;

use crate::image::ImageError;

/// Why something was refused or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// What a change met: no space, damage, a failing device, a name that exists.
    Change(engine::Error),
    /// The journal cannot be read or replayed.
    Journal(LogError),
    /// The image cannot be opened.
    Image(Box<ImageError>),
    /// This volume or its device cannot be written.
    Unwritable {
        /// Why, and what to do.
        why: String,
    },
}

impl Error {
    /// A refusal with an errno that users know.
    pub(crate) fn refused(errno: i32, why: &'static str) -> Self {
        Self::Change(engine::Error::Refused { errno, why })
    }

    /// Whether it is the device that failed, and not the volume on it: its errno is that of the system below.
    pub fn is_of_device(&self) -> bool {
        matches!(self, Self::Change(engine::Error::Device(_)))
    }

    /// The errno that a system call would return.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Change(error) => error.errno(),
            Self::Journal(error) => error.errno(),
            Self::Image(error) => error.errno(),
            Self::Unwritable { .. } => errno::EROFS,
        }
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        Self::Change(error)
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Self::Journal(error)
    }
}

impl From<ImageError> for Error {
    fn from(error: ImageError) -> Self {
        Self::Image(error.into())
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Change(error.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Image(error) => error.fmt(f),
            Self::Unwritable { why } => f.write_str(why),
        }
    }
}

/// The message tells all causes, so there is none below it.
impl std::error::Error for Error {}
