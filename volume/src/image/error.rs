//! Why an image cannot be opened, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base::errno::{self, Errno};
use block::{Content, DeviceError, OpenError};
use format::features;
use format::superblock::SuperblockError;
use journal::LogError;

/// Why an image cannot be opened. The message says what to do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImageError {
    /// The file cannot be opened or locked, or the partition is not found.
    Open {
        /// The cause.
        error: OpenError,
        /// What to do about it, where `error` does not say that.
        advice: Option<&'static str>,
    },
    /// Waiting for the server of a mount failed.
    Wait(io::Error),
    /// The device failed.
    Device(DeviceError),
    /// The device does not hold an XFS file system.
    NotXfs {
        /// The device, as it describes itself.
        device: String,
        /// What it holds.
        content: Content,
    },
    /// The superblock is damaged, or describes a volume that is not supported.
    Superblock {
        /// The device, as it describes itself.
        device: String,
        /// The cause.
        reason: SuperblockError,
    },
    /// The device is shorter than its superblock says.
    Truncated {
        /// The device, as it describes itself.
        device: String,
        /// Bytes of the volume.
        need: u64,
        /// Bytes of the device.
        have: u64,
    },
    /// The log is internal, and this log device was given.
    LogIsInternal(PathBuf),
    /// The log is external, and no log device was given.
    LogDeviceMissing,
    /// The log cannot be read.
    Log(LogError),
    /// The log cannot be replayed.
    Replay(LogError),
    /// The dirty log holds items of these unknown features (`sb_features_log_incompat`).
    LogFeatures(u32),
    /// Changes were asked for without replay of the log.
    ChangeWithoutReplay,
}

impl ImageError {
    /// The error with advice for a file that can be read, and was to be opened for changes.
    pub(super) fn open(error: OpenError, path: Option<&Path>) -> Self {
        let is_readable = || path.is_some_and(|path| std::fs::File::open(path).is_ok());
        let advice = match (&error, Errno::new(error.errno())) {
            (OpenError::Io { .. }, errno::EACCES | errno::EPERM) if is_readable() => {
                "it can be read, but is to be changed: make it writable with chmod, copy it, or mount it with -o ro"
            }
            (OpenError::Io { .. }, errno::EROFS) if is_readable() => {
                "it can be read, but is to be changed, and is on a file system that is mounted read-only: copy it, \
                 or mount it with -o ro"
            }
            _ => return Self::Open { error, advice: None },
        };
        Self::Open { error, advice: Some(advice) }
    }

    /// The errno that a system call would return.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Open { error, .. } => Errno::new(error.errno()),
            Self::Wait(error) => error.raw_os_error().map_or(errno::EIO, Errno::new),
            Self::Device(error) => Errno::new(error.errno()),
            Self::Superblock { reason: SuperblockError::Damaged(_), .. } => errno::EFSCORRUPTED,
            Self::Truncated { .. } => errno::EIO,
            Self::Log(error) | Self::Replay(error) => error.errno(),
            Self::LogFeatures(_) => errno::EOPNOTSUPP,
            Self::NotXfs { .. }
            | Self::Superblock { .. }
            | Self::LogIsInternal(_)
            | Self::LogDeviceMissing
            | Self::ChangeWithoutReplay => errno::EINVAL,
        }
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { error, advice: None } => error.fmt(f),
            Self::Open { error, advice: Some(advice) } => write!(f, "{error} ({advice})"),
            Self::Wait(error) => write!(f, "cannot wait for the server of the mount: {error}"),
            Self::Device(error) => error.fmt(f),
            Self::NotXfs { device, content } => {
                write!(f, "{device}: this is {content}, not an XFS file system")?;
                content.advice().map_or(Ok(()), |advice| write!(f, " ({advice})"))
            }
            Self::Superblock { device, reason } => write!(f, "{device}: {reason}"),
            Self::Truncated { device, need, have } => write!(
                f,
                "{device}: the image is cut short: the volume needs {need} bytes, the image has {have} \
                 (get the whole image; a sparse copy must keep its length)"
            ),
            Self::LogIsInternal(path) => {
                let path = path.display();
                write!(f, "the volume's log is internal: --log-device {path} does not belong to it")
            }
            Self::LogDeviceMissing => f.write_str(
                "the log is on another device: name it with --log-device, or read the volume without replay with \
                 --no-replay",
            ),
            Self::Log(error) => write!(f, "the log cannot be read: {error}"),
            Self::Replay(error) => {
                write!(f, "the log cannot be replayed (--no-replay shows the volume without replay): {error}")
            }
            Self::LogFeatures(unknown) => {
                let names = features::names(*unknown, features::log_incompat::ALL);
                write!(
                    f,
                    "the log holds items that this version cannot replay: {names} (--no-replay shows the volume \
                     without replay)"
                )
            }
            Self::ChangeWithoutReplay => {
                f.write_str("a volume is not changed without replay of its log (omit --no-replay)")
            }
        }
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open { error, .. } => Some(error),
            Self::Wait(error) => Some(error),
            Self::Device(error) => Some(error),
            Self::Superblock { reason, .. } => Some(reason),
            Self::Log(error) | Self::Replay(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DeviceError> for ImageError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
