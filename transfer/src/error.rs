//! The error of this crate. Messages name the file, the cause and the next step.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use base::errno::Errno;

use crate::copy::CopyError;
use crate::progress::{Notice, NoticeKind};

/// A result with an [`Error`] of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of an import, an extraction or a new image.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file of the source cannot be read.
    Source {
        /// The file.
        path: PathBuf,
        /// What failed, after "cannot".
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A file changed while it was read.
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file, path or option of a source is invalid.
    Invalid {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A change of the volume failed.
    Volume {
        /// The file in the volume.
        path: PathBuf,
        /// The cause.
        source: volume::Error,
    },
    /// The volume of an extraction cannot be read.
    Read {
        /// The file in the volume.
        path: PathBuf,
        /// The cause.
        source: read::Error,
    },
    /// An archive cannot be completed: contents cannot be read that a header has announced.
    Incomplete {
        /// The file in the volume.
        path: PathBuf,
        /// The cause.
        source: read::Error,
    },
    /// A file on the host cannot be created.
    Target {
        /// The file.
        path: PathBuf,
        /// What failed, after "cannot".
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The target exists and must not be replaced.
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// A stream cannot be written.
    Output(io::Error),
    /// An image cannot be opened.
    Image(volume::ImageError),
    /// A file cannot be created or locked.
    Open(block::OpenError),
    /// A device cannot be read or written.
    Device(block::DeviceError),
    /// An option of an image is invalid.
    Option {
        /// The option.
        option: String,
        /// The problem.
        problem: String,
    },
    /// A volume cannot be created.
    Mkfs(mkfs::MkfsError),
    /// A new volume cannot be opened or completed.
    NewVolume(volume::Error),
    /// A part of an image cannot be written.
    Container {
        /// The part.
        part: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A stream cannot be stored in a temporary file.
    Spool(io::Error),
    /// The system has no random numbers.
    Random(io::Error),
    /// Nothing can be copied to a target.
    Copy(Box<CopyError>),
    /// [`Cancel::cancel`](crate::Cancel::cancel) was called.
    Cancelled,
}

impl Error {
    pub(crate) fn source(
        path: impl Into<PathBuf>,
        action: &'static str,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Source { path: path.into(), action, source: source.into() }
    }

    pub(crate) fn invalid(path: &[u8], problem: impl Into<String>) -> Self {
        Self::Invalid { path: path_of(path), problem: problem.into() }
    }

    pub(crate) fn volume(path: &[u8]) -> impl FnOnce(volume::Error) -> Self + '_ {
        move |source| Self::Volume { path: Path::new("/").join(path_of(path)), source }
    }

    pub(crate) fn read(path: &[u8], source: read::Error) -> Self {
        Self::Read { path: path_of(path), source }
    }

    pub(crate) fn incomplete(path: &[u8], source: read::Error) -> Self {
        Self::Incomplete { path: path_of(path), source }
    }

    pub(crate) fn target(path: &[u8], action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Target { path: path_of(path), action, source: source.into() }
    }

    /// Errno of the cause, if it has one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Volume { source, .. } | Self::NewVolume(source) => Some(source.errno()),
            Self::Read { source, .. } | Self::Incomplete { source, .. } => Some(source.errno()),
            Self::Image(error) => Some(error.errno()),
            Self::Open(error) => Some(Errno::new(error.errno())),
            Self::Device(error) => Some(Errno::new(error.errno())),
            Self::Mkfs(error) => Some(error.errno()),
            Self::Source { source, .. }
            | Self::Target { source, .. }
            | Self::Container { source, .. }
            | Self::Spool(source)
            | Self::Random(source)
            | Self::Output(source) => source.raw_os_error().map(Errno::new),
            Self::Option { .. } => Some(base::errno::EINVAL),
            Self::Exists { .. } => Some(base::errno::EEXIST),
            Self::Copy(error) => error.errno(),
            Self::Changed { .. } | Self::Invalid { .. } | Self::Cancelled => None,
        }
    }

    pub(crate) fn option(option: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Option { option: option.into(), problem: problem.into() }
    }

    /// The error as a message about an unreadable file.
    pub(crate) fn notice(&self) -> Notice {
        let path = match self {
            Self::Source { path, .. } => path.as_os_str().as_bytes(),
            _ => b"",
        };
        // The text begins with the path.
        let (text, prefix) = (self.to_string(), format!("{:?}: ", path_of(path)));
        Notice::new(NoticeKind::Unreadable, path, text.strip_prefix(&prefix).unwrap_or(&text))
    }

    /// Whether a file of the source could not be read, so that the import may go on without it. A file that changed
    /// while it was read is not such an error.
    pub fn is_unreadable(&self) -> bool {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        match self {
            Self::Source { source, .. } => {
                source.raw_os_error().is_some() || matches!(source.kind(), InvalidData | UnexpectedEof)
            }
            _ => false,
        }
    }

    /// Whether the volume is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Volume { source, .. } if source.errno() == base::errno::ENOSPC && !source.is_of_device())
    }
}

pub(crate) fn path_of(path: &[u8]) -> PathBuf {
    OsStr::from_bytes(path).into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `Debug` of a path escapes control characters.
            Self::Source { path, action, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "{path:?}: cannot {action}: {source}: run this as a user with permission to read it"
                )
            }
            Self::Source { path, action, source } => write!(f, "{path:?}: cannot {action}: {source}"),
            Self::Changed { path } => {
                write!(f, "{path:?} changed while it was read: repeat this while no program writes to it")
            }
            Self::Invalid { path, problem } => write!(f, "{path:?}: {problem}"),
            Self::Volume { source, .. } if source.errno() == base::errno::ENOSPC && source.is_of_device() => {
                write!(
                    f,
                    "{source}: the file system of the image is full: free some space, or create the image elsewhere"
                )
            }
            Self::Volume { path, .. } if self.is_full() => {
                write!(f, "{path:?} in the volume: the volume is full: make it larger with --size or --free")
            }
            Self::Volume { path, source } => write!(f, "{path:?} in the volume: {source}"),
            // These errors name their file.
            Self::Read { source, .. } => source.fmt(f),
            Self::Incomplete { path, source } => {
                write!(f, "the archive cannot be completed: {path:?}: {source}")
            }
            Self::Target { path, action, source } => write!(f, "{path:?}: cannot {action}: {source}"),
            Self::Exists { path } => write!(f, "{path:?} already exists"),
            Self::Output(error) => error.fmt(f),
            Self::Image(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Option { option, problem } => write!(f, "{option}: {problem}"),
            Self::Mkfs(error) => error.fmt(f),
            Self::NewVolume(error) => write!(f, "the new volume: {error}"),
            Self::Container { part, source } => write!(f, "{part}: {source}"),
            Self::Spool(error) => {
                write!(f, "the stream cannot be stored in a temporary file beside the image: {error}")
            }
            Self::Random(error) => write!(f, "no random numbers from the system: {error}"),
            Self::Copy(error) => error.fmt(f),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// The message contains all causes, so `source` returns none.
impl std::error::Error for Error {}
