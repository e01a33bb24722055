//! The error of reading and changing a volume, shared by the layers from `journal` to `volume`.
//!
//! Each error has the errno that a system call would return, and a message that says what to do.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

use std::fmt;
use std::sync::Arc;

use base::errno::{self, Errno};
use block::DeviceError;
use format::damage::{Damage, Place};

/// Result of an operation on a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a volume failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A read or a write failed.
    Device(Arc<DeviceError>),
    /// An on-disk structure is damaged.
    Damaged {
        /// Location of the structure.
        place: Place,
        /// Field, expected and found value.
        damage: Damage,
    },
    /// No free blocks, or no reservation for them. `ENOSPC`.
    NoSpace {
        /// What the blocks were needed for.
        what: &'static str,
    },
    /// An earlier error shut the volume down; nothing more is written. `EIO`.
    ShutDown {
        /// The earlier error.
        cause: Arc<str>,
    },
    /// The log, the volume or its device cannot be used as requested. The reason is made at run time.
    Unusable {
        /// Error number.
        errno: Errno,
        /// Reason, and what to do.
        why: Arc<str>,
    },
    /// The request is invalid for this file or volume.
    Refused {
        /// Error number.
        errno: Errno,
        /// Reason, and what to do.
        why: &'static str,
    },
}

impl Error {
    /// Returns the error for damage found at `place`.
    #[cold]
    pub fn damaged(place: Place, damage: Damage) -> Self {
        Self::Damaged { place, damage }
    }

    /// Returns the error for a log that does not fit the volume or the request. `EINVAL`.
    #[cold]
    pub fn log(why: String) -> Self {
        Self::Unusable { errno: errno::EINVAL, why: why.into() }
    }

    /// Returns the errno that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Device(error) => Errno::new(error.errno()),
            Self::Damaged { .. } => errno::EFSCORRUPTED,
            Self::NoSpace { .. } => errno::ENOSPC,
            Self::ShutDown { .. } => errno::EIO,
            Self::Unusable { errno, .. } | Self::Refused { errno, .. } => *errno,
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Device(Arc::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Damaged { place, damage } => write!(f, "{place}: {damage} (run \"xebec check\")"),
            Self::NoSpace { what } => {
                write!(f, "no space left for {what} (remove files, or grow the volume)")
            }
            Self::ShutDown { cause } => write!(
                f,
                "the volume was shut down: {cause} (nothing more is written to it; open it again to recover it)"
            ),
            Self::Unusable { why, .. } => f.write_str(why),
            Self::Refused { why, .. } => f.write_str(why),
        }
    }
}

/// The message contains all causes, so there is no source.
impl std::error::Error for Error {}
