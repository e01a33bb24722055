//! Errors of creating a volume.

use std::fmt;

use base::errno::{self, Errno};
use block::DeviceError;
use format::superblock::SuperblockError;

/// The reason why no volume was created.
#[derive(Debug)]
#[non_exhaustive]
pub enum MkfsError {
    /// An option is out of range, or conflicts with another one or with the device. Nothing was written.
    Option {
        /// The option of `mkfs.xfs`, such as `-d agcount`.
        option: &'static str,
        /// What is wrong, and valid values.
        problem: String,
    },
    /// The device failed. It does not contain a volume now.
    Device(DeviceError),
    /// The new superblock is invalid: a bug.
    Refused(SuperblockError),
}

impl MkfsError {
    pub(crate) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        Self::Option { option, problem: problem.into() }
    }

    /// The errno that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Option { .. } => errno::EINVAL,
            Self::Device(error) => Errno::new(error.errno()),
            Self::Refused(_) => errno::EFSCORRUPTED,
        }
    }
}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { option, problem } => write!(f, "{option}: {problem}"),
            Self::Device(error) => error.fmt(f),
            Self::Refused(refusal) => {
                write!(f, "the new superblock is invalid: {refusal} (this is a bug; please report it)")
            }
        }
    }
}

/// The message contains the cause, so there is no source.
impl std::error::Error for MkfsError {}

impl From<DeviceError> for MkfsError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
