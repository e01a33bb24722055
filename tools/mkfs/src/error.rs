//! What can go wrong while a volume is made.

use std::fmt;

use base::errno::{self, Errno};
use block::DeviceError;
use format::superblock::SuperblockError;

/// Why no volume was made.
#[derive(Debug)]
#[non_exhaustive]
pub enum MkfsError {
    /// An option is out of range, or contradicts another or the device. Nothing was written.
    Option {
        /// The option as `mkfs.xfs` spells it: `-d agcount`.
        option: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The device failed; what it holds now is no volume.
    Device(DeviceError),
    /// The superblock that was computed does not verify: an error of this program.
    Refused(SuperblockError),
}

impl MkfsError {
    pub(crate) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        Self::Option { option, problem: problem.into() }
    }

    /// The errno that a system call would have returned.
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
                write!(f, "the new superblock does not verify: {refusal} (please report this)")
            }
        }
    }
}

/// The message tells all causes, so there is none below it.
impl std::error::Error for MkfsError {}

impl From<DeviceError> for MkfsError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
