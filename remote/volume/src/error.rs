//! Errors of a volume on a store.

use std::fmt;
use std::io;

use base::errno::{self, Errno};
use block::{DeviceError, Operation};
use store::{ErrorKind, StoreError};

/// Stored bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The structure.
    pub what: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// An operation on a volume that failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ObjectError {
    /// The store refused a request, or did not answer in time.
    Store(StoreError),
    /// An object is damaged.
    Damaged {
        /// The volume.
        volume: Box<str>,
        /// The object.
        key: Box<str>,
        /// What is wrong with it.
        damage: Damage,
    },
    /// There is no volume.
    NoVolume {
        /// The volume.
        volume: Box<str>,
    },
    /// There is one already.
    Exists {
        /// The volume.
        volume: Box<str>,
    },
    /// Another writer has it open, or ended without closing it.
    InUse {
        /// The volume.
        volume: Box<str>,
        /// The writer, as it names itself.
        writer: Box<str>,
    },
    /// Another writer has taken the volume over. Nothing can be written any more.
    Fenced {
        /// The volume.
        volume: Box<str>,
    },
    /// The store ignores conditions of writes, so that two writers could not be kept apart.
    NoConditions {
        /// The volume.
        volume: Box<str>,
    },
    /// There is no such snapshot, or there is one already.
    Snapshot {
        /// The volume.
        volume: Box<str>,
        /// The snapshot.
        name: Box<str>,
        /// What is wrong.
        reason: &'static str,
    },
    /// The request makes no sense for this volume.
    Refused {
        /// The volume.
        volume: Box<str>,
        /// Why, and what to do.
        reason: Box<str>,
    },
}

/// Result of operations on a volume.
pub type Result<T> = std::result::Result<T, ObjectError>;

impl From<StoreError> for ObjectError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Damaged { volume, key, damage: Damage { what, reason } } => {
                write!(f, "{volume}/{key}: the {what} is damaged: {reason}")
            }
            Self::NoVolume { volume } => write!(f, "{volume}: there is no volume (it has no object `head`)"),
            Self::Exists { volume } => write!(f, "{volume}: there is a volume already"),
            Self::InUse { volume, writer } => write!(
                f,
                "{volume}: it is open for writing by {writer} (if that program has ended without closing the \
                 volume, use --take-over)"
            ),
            Self::Fenced { volume } => {
                write!(f, "{volume}: another writer has taken the volume over; nothing was written since")
            }
            Self::NoConditions { volume } => write!(
                f,
                "{volume}: the store ignores conditions of writes (If-Match, If-None-Match), which keep two \
                 writers apart: use another store"
            ),
            Self::Snapshot { volume, name, reason } => write!(f, "{volume}@{name}: {reason}"),
            Self::Refused { volume, reason } => write!(f, "{volume}: {reason}"),
        }
    }
}

impl std::error::Error for ObjectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl ObjectError {
    /// The errno that a system call would have returned.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Store(error) => match error.kind {
                ErrorKind::Absent => errno::ENOENT,
                ErrorKind::Precondition => errno::EAGAIN,
                ErrorKind::Unclear => errno::ETIMEDOUT,
                ErrorKind::Denied => errno::EACCES,
                ErrorKind::Unsupported => errno::EOPNOTSUPP,
                ErrorKind::Invalid => errno::EIO,
            },
            Self::Damaged { .. } => errno::EIO,
            Self::NoVolume { .. } | Self::Snapshot { .. } => errno::ENOENT,
            Self::Exists { .. } => errno::EEXIST,
            Self::InUse { .. } => errno::EBUSY,
            Self::Fenced { .. } => errno::EIO,
            Self::NoConditions { .. } => errno::EOPNOTSUPP,
            Self::Refused { .. } => errno::EINVAL,
        }
    }

    /// As the error of a device.
    pub(crate) fn into_device(
        self,
        device: &str,
        operation: Operation,
        offset: u64,
        length: u64,
    ) -> DeviceError {
        DeviceError::Io { device: device.into(), operation, offset, length, source: io::Error::other(self) }
    }
}
