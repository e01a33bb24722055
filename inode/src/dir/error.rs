//! What can go wrong with a directory.

use std::fmt;

use base::errno;
use format::{Damage, Place};

/// What operations on directories return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
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
    /// What was asked for cannot be.
    Refused {
        /// One of [`base::errno`].
        errno: i32,
        /// Why.
        why: &'static str,
    },
}

impl Error {
    /// Damage that was found at `place`.
    #[cold]
    pub fn damaged(place: Place, damage: Damage) -> Self {
        Self::Damaged { place, damage }
    }

    /// The errno that a system call would return.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Damaged { .. } => errno::EFSCORRUPTED,
            Self::NoSpace { .. } => errno::ENOSPC,
            Self::Refused { errno, .. } => *errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { place, damage } => write!(f, "{place}: {damage} (run \"xebec check\")"),
            Self::NoSpace { what } => {
                write!(f, "no space left for {what} (remove files, or grow the volume)")
            }
            Self::Refused { why, .. } => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}
