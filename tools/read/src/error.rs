//! Errors of reading a volume.

use std::fmt;

use base::Ino;
use base::errno::{self, Errno};
use block::DeviceError;
use format::superblock::SuperblockError;
use format::{Damage, Place};

/// Result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be read. The message gives the place and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    Device(DeviceError),
    /// The superblock is damaged or not supported.
    Refused {
        /// The device, as it describes itself.
        device: String,
        /// The cause.
        reason: SuperblockError,
    },
    /// The image is shorter than its superblock says, in bytes.
    Truncated {
        /// The device, as it describes itself.
        device: String,
        /// Bytes of the volume.
        need: u64,
        /// Bytes of the device.
        have: u64,
    },
    /// A structure is damaged.
    Damaged {
        /// Place of the structure.
        place: Place,
        /// The damage.
        damage: Damage,
    },
    /// An inode number that the volume cannot have, or whose inode is free.
    NoSuchInode(Ino),
    /// The operation does not apply to this object.
    Unfit {
        /// `ENOENT`, `ENOTDIR`, `EISDIR`, `EINVAL`, `ELOOP`, `ENAMETOOLONG`, `ENODATA`, `EOPNOTSUPP`.
        errno: Errno,
        /// The path or inode, as the caller named it, with the reason.
        message: String,
    },
}

impl Error {
    /// Damage at a place.
    pub fn damaged(place: Place, damage: Damage) -> Self {
        Self::Damaged { place, damage }
    }

    /// An operation that does not apply.
    pub fn unfit(errno: Errno, message: impl Into<String>) -> Self {
        Self::Unfit { errno, message: message.into() }
    }

    /// The errno that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Device(error) => Errno::new(error.errno()),
            Self::Refused { reason: SuperblockError::Damaged(_), .. } | Self::Damaged { .. } => {
                errno::EFSCORRUPTED
            }
            Self::Refused { .. } => errno::EINVAL,
            Self::Truncated { .. } => errno::EIO,
            Self::NoSuchInode(_) => errno::ENOENT,
            Self::Unfit { errno, .. } => *errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Refused { device, reason } => write!(f, "{device}: {reason}"),
            Self::Truncated { device, need, have } => write!(
                f,
                "{device}: the image is cut short: the volume needs {need} bytes, the image has {have} \
                 (copy the whole image; a sparse copy must keep its length)"
            ),
            Self::Damaged { place, damage } => {
                write!(f, "{place}: {damage} (the volume is damaged; run \"xebec check\")")
            }
            Self::NoSuchInode(ino) => {
                write!(f, "inode {ino}: no such inode (it is free, or outside of the volume)")
            }
            Self::Unfit { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(error),
            Self::Refused { reason, .. } => Some(reason),
            Self::Damaged { damage, .. } => Some(damage),
            _ => None,
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.errno().get()).kind();
        Self::new(kind, error)
    }
}
