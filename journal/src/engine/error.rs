//! What can go wrong with a change of a volume.

use std::fmt;
use std::sync::Arc;

use base::errno;
use block::DeviceError;
use format::damage::{Damage, Place};

use crate::LogError;

/// Why a change was refused or failed. Each has the errno that a system call would return.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A read or a write failed.
    Device(Arc<DeviceError>),
    /// What lies on the disk is damaged.
    Damaged {
        /// Where.
        place: Place,
        /// What.
        damage: Damage,
    },
    /// There is no room. `ENOSPC`.
    NoSpace {
        /// For what.
        what: &'static str,
    },
    /// The volume was shut down by an earlier error; nothing more is written. `EIO`.
    ShutDown {
        /// What that was.
        cause: Arc<str>,
    },
    /// The log cannot be used: its place, its size, or what is in it.
    Log {
        /// One of [`base::errno`].
        errno: i32,
        /// Why, and what to do.
        why: Arc<str>,
    },
    /// What was asked for cannot be: the errno says in which of the ways that users know.
    Refused {
        /// One of [`base::errno`].
        errno: i32,
        /// Why, and what to do.
        why: &'static str,
    },
}

impl Error {
    /// Damage that was found at `place`.
    #[cold]
    pub fn damaged(place: Place, damage: Damage) -> Self {
        Self::Damaged { place, damage }
    }

    /// The log does not fit what it is asked to be.
    #[cold]
    pub fn log(why: String) -> Self {
        Self::Log { errno: errno::EINVAL, why: why.into() }
    }

    /// The errno that a system call would return.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::Damaged { .. } => errno::EFSCORRUPTED,
            Self::NoSpace { .. } => errno::ENOSPC,
            Self::ShutDown { .. } => errno::EIO,
            Self::Log { errno, .. } | Self::Refused { errno, .. } => *errno,
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Device(Arc::new(error))
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Self::Log { errno: error.errno(), why: error.to_string().into() }
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
            Self::Log { why, .. } => f.write_str(why),
            Self::Refused { why, .. } => f.write_str(why),
        }
    }
}

/// The message tells all causes, so there is none below it.
impl std::error::Error for Error {}
