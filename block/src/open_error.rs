//! Why an image could not be opened, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{DeviceError, errno_of};
use crate::lock::Holder;
use crate::partition::{Partition, PartitionError};
use crate::probe::{Class, Content};

/// A device or image that could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused: no such file, no permission, and so on.
    Io {
        /// The path as given.
        path: PathBuf,
        /// The error as reported.
        source: io::Error,
    },
    /// A new file cannot be made.
    Make {
        /// The path as given.
        path: PathBuf,
        /// The error as reported.
        source: io::Error,
    },
    /// A directory, a fifo, a socket or a character device.
    NotADevice {
        /// The path as given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file system that holds the image does not support direct I/O.
    DirectRefused {
        /// The path as given.
        path: PathBuf,
        /// The error as reported.
        source: io::Error,
    },
    /// Somebody else has the lock.
    Locked {
        /// The path as given.
        path: PathBuf,
        /// Who.
        by: Holder,
    },
    /// Something else than a file would be replaced by one.
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// A loop device that may write to it lies on it.
    Looped {
        /// The path as given.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
    },
    /// A block device that is mounted, or that another driver has claimed.
    InUse {
        /// The path as given.
        path: PathBuf,
    },
    /// io_uring was asked for by name and cannot be had.
    NoUring {
        /// The path as given.
        path: PathBuf,
        /// Why the kernel, or this build, refuses it.
        source: io::Error,
    },
    /// A container format that cannot be read, or not in the way that was asked for.
    Unsupported {
        /// The path as given.
        path: PathBuf,
        /// What it is, with an article.
        name: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A container that is damaged, or needs what it may not have.
    Container {
        /// The path as given.
        path: PathBuf,
        /// Its format.
        format: &'static str,
        /// What is wrong.
        source: io::Error,
    },
    /// A container that can be read, but is not changed in place.
    Unchangeable {
        /// The path as given.
        path: PathBuf,
        /// Its format.
        format: &'static str,
        /// Why, and what to do about it.
        source: io::Error,
    },
    /// A partition must be chosen, or the one that was asked for does not exist.
    Partitions {
        /// The disk.
        device: Box<str>,
        /// The number that was asked for.
        asked: Option<u32>,
        /// All that there are, and what they hold.
        found: Vec<ListedPartition>,
    },
    /// The partition table cannot be read.
    Table(PartitionError),
    /// The opened device failed while its contents were looked at.
    Device(DeviceError),
}

/// A partition and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPartition {
    /// The table's entry.
    pub partition: Partition,
    /// What it holds; `None` where it lies outside the disk or cannot be read.
    pub content: Option<Content>,
}

impl ListedPartition {
    /// Whether an XFS file system begins where the partition does.
    pub fn holds_xfs(&self) -> bool {
        self.content.is_some_and(|content| content.class == Class::Xfs)
    }
}

impl fmt::Display for ListedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partition { number, start, length, kind, name, .. } = &self.partition;
        let content = self.content.map_or("outside the disk, or not readable", |content| content.name);
        write!(f, "{number:>4}: {length} bytes at {start}, {kind}")?;
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
    asked: Option<u32>,
    found: &[ListedPartition],
) -> fmt::Result {
    let with_xfs = found.iter().filter(|listed| listed.holds_xfs()).count();
    match (asked, with_xfs) {
        (Some(number), _) if found.is_empty() => {
            return write!(f, "{device}: there is no partition {number}: the disk has no partitions");
        }
        (Some(number), _) => write!(f, "{device}: there is no partition {number}, but these:")?,
        (None, _) if found.is_empty() => return write!(f, "{device}: its partition table is empty"),
        (None, 0) => {
            write!(f, "{device}: no partition holds XFS (take one with --partition N all the same):")?
        }
        (None, count) => write!(f, "{device}: {count} partitions hold XFS (choose with --partition N):")?,
    }
    found.iter().try_for_each(|listed| write!(f, "\n{listed}"))
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: cannot open: {source}", path.display()),
            Self::Make { path, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(f, "{}: cannot be made: there is no such directory", path.display())
            }
            Self::Make { path, source } => write!(f, "{}: cannot be made: {source}", path.display()),
            Self::NotADevice { path, kind } => {
                write!(f, "{}: this is a {kind}, not an image file or a block device", path.display())
            }
            Self::DirectRefused { path, source } => write!(
                f,
                "{}: the file system that holds it refuses direct I/O: {source} (open it without direct I/O)",
                path.display()
            ),
            Self::Looped { path, device } => {
                write!(
                    f,
                    "{}: it is in use as {} (unmount that, or take it away by losetup -d)",
                    path.display(),
                    device.display()
                )
            }
            Self::Locked { path, by } => write!(f, "{}: {by} ({})", path.display(), by.advice()),
            Self::NotAFile { path } => {
                write!(f, "{}: this is no file, and is not replaced by one", path.display())
            }
            Self::InUse { path } => write!(
                f,
                "{}: the device is mounted or claimed by another driver (unmount it before writing)",
                path.display()
            ),
            Self::NoUring { path, source } => write!(
                f,
                "{}: io_uring cannot be used: {source} (let the program choose, or ask for pread)",
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
            Self::Partitions { device, asked, found } => write_partitions(f, device, *asked, found),
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
