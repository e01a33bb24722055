//! Errors of opening an image, with what to do about them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{DeviceError, errno_of};
use crate::lock::LockHolder;
use crate::partition::{Partition, PartitionError};
use crate::probe::{Content, ContentClass};

/// A device or image that could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// An error of the system.
    Io {
        /// The path as given.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A new file cannot be created.
    Make {
        /// The path as given.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A directory, a fifo, a socket or a character device.
    NotADevice {
        /// The path as given.
        path: PathBuf,
        /// Its type.
        file_type: &'static str,
    },
    /// The file system does not support direct I/O.
    DirectRefused {
        /// The path as given.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The image is locked.
    Locked {
        /// The path as given.
        path: PathBuf,
        /// The holder of the lock.
        by: LockHolder,
    },
    /// Only a regular file can be replaced.
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// A writable loop device uses the file.
    Looped {
        /// The path as given.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
    },
    /// The block device is mounted, or claimed by another driver.
    InUse {
        /// The path as given.
        path: PathBuf,
    },
    /// [`Io::Uring`](crate::Io::Uring) was requested and is not available.
    NoUring {
        /// The path as given.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A container format that cannot be read.
    Unsupported {
        /// The path as given.
        path: PathBuf,
        /// The format, with an article.
        name: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The container is damaged, or needs another file that may not be opened.
    Container {
        /// The path as given.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The container can be read, but not be changed in place.
    Unchangeable {
        /// The path as given.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// The reason, and what to do about it.
        source: io::Error,
    },
    /// A partition must be chosen, or the requested one does not exist.
    Partitions {
        /// The disk.
        device: Box<str>,
        /// The requested number.
        requested: Option<u32>,
        /// The existing partitions and their contents.
        found: Vec<ListedPartition>,
    },
    /// The partition table cannot be read.
    Table(PartitionError),
    /// The device failed while its contents were examined.
    Device(DeviceError),
}

/// A partition and its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPartition {
    /// The entry of the partition table.
    pub partition: Partition,
    /// The contents; `None` if it is outside the disk or cannot be read.
    pub content: Option<Content>,
}

impl ListedPartition {
    /// Whether it contains an XFS file system.
    pub fn holds_xfs(&self) -> bool {
        self.content.is_some_and(|content| content.class == ContentClass::Xfs)
    }
}

impl fmt::Display for ListedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partition { number, start, length, partition_type, name, .. } = &self.partition;
        let content = self.content.map_or("outside the disk, or not readable", |content| content.name);
        write!(f, "{number:>4}: {length} bytes at {start}, {partition_type}")?;
        if !name.is_empty() {
            write!(f, " {name:?}")?;
        }
        write!(f, ": {content}")
    }
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn make(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Make { path: path.to_owned(), source: source.into() }
    }

    /// The errno that a system call would have returned.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io { source, .. }
            | Self::Make { source, .. }
            | Self::DirectRefused { source, .. }
            | Self::NoUring { source, .. } => errno_of(source),
            Self::NotADevice { .. } => Errno::NOTBLK.raw_os_error(),
            Self::NotAFile { .. } => Errno::EXIST.raw_os_error(),
            Self::Locked { .. } => Errno::AGAIN.raw_os_error(),
            Self::Looped { .. } | Self::InUse { .. } => Errno::BUSY.raw_os_error(),
            Self::Unsupported { .. } => Errno::OPNOTSUPP.raw_os_error(),
            Self::Container { source, .. } | Self::Unchangeable { source, .. } => errno_of(source),
            Self::Partitions { .. } => Errno::NXIO.raw_os_error(),
            Self::Table(error) => error.errno(),
            Self::Device(error) => error.errno(),
        }
    }
}

impl From<DeviceError> for OpenError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<PartitionError> for OpenError {
    fn from(error: PartitionError) -> Self {
        Self::Table(error)
    }
}

/// The message of [`OpenError::Partitions`]: one line that says what to do, then one per partition.
fn write_partitions(
    f: &mut fmt::Formatter<'_>,
    device: &str,
    requested: Option<u32>,
    found: &[ListedPartition],
) -> fmt::Result {
    let with_xfs = found.iter().filter(|listed| listed.holds_xfs()).count();
    match (requested, with_xfs) {
        (Some(number), _) if found.is_empty() => {
            return write!(f, "{device}: there is no partition {number}: the disk has no partitions");
        }
        (Some(number), _) => write!(f, "{device}: there is no partition {number}; the partitions are:")?,
        (None, _) if found.is_empty() => return write!(f, "{device}: its partition table is empty"),
        (None, 0) => write!(
            f,
            "{device}: no partition contains XFS (choose one with --partition N to open it anyway):"
        )?,
        (None, count) => {
            write!(f, "{device}: {count} partitions contain XFS (choose one with --partition N):")?
        }
    }
    found.iter().try_for_each(|listed| write!(f, "\n{listed}"))
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: cannot open: {source}", path.display()),
            Self::Make { path, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(f, "{}: cannot create: no such directory", path.display())
            }
            Self::Make { path, source } => write!(f, "{}: cannot create: {source}", path.display()),
            Self::NotADevice { path, file_type } => {
                write!(f, "{}: this is a {file_type}, not an image file or a block device", path.display())
            }
            Self::DirectRefused { path, source } => write!(
                f,
                "{}: the file system does not support direct I/O: {source} (open it without direct I/O)",
                path.display()
            ),
            Self::Looped { path, device } => {
                write!(
                    f,
                    "{}: it is in use as {} (unmount that, or detach it with losetup -d)",
                    path.display(),
                    device.display()
                )
            }
            Self::Locked { path, by } => write!(f, "{}: {by} ({})", path.display(), by.advice()),
            Self::NotAFile { path } => {
                write!(f, "{}: not a regular file, not replaced", path.display())
            }
            Self::InUse { path } => write!(
                f,
                "{}: the device is mounted or claimed by another driver (unmount it before writing)",
                path.display()
            ),
            Self::NoUring { path, source } => write!(
                f,
                "{}: io_uring is not available: {source} (use --io auto or --io pread)",
                path.display()
            ),
            Self::Unsupported { path, name, advice } => {
                write!(f, "{}: this is {name}: {advice}", path.display())
            }
            Self::Container { path, format, source } => {
                write!(f, "{}: cannot be read as {format}: {source}", path.display())
            }
            Self::Unchangeable { path, format, source } => {
                write!(f, "{}: this {format} image cannot be changed in place: {source}", path.display())
            }
            Self::Partitions { device, requested, found } => write_partitions(f, device, *requested, found),
            Self::Table(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. }
            | Self::Make { source, .. }
            | Self::DirectRefused { source, .. }
            | Self::NoUring { source, .. }
            | Self::Container { source, .. }
            | Self::Unchangeable { source, .. } => Some(source),
            Self::Table(error) => std::error::Error::source(error),
            Self::Device(error) => std::error::Error::source(error),
            Self::NotADevice { .. }
            | Self::NotAFile { .. }
            | Self::Locked { .. }
            | Self::Looped { .. }
            | Self::InUse { .. }
            | Self::Unsupported { .. }
            | Self::Partitions { .. } => None,
        }
    }
}
