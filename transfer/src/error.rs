//! What can go wrong, worded as help.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// An error of this crate, or what came of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a tree could not be taken in.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Something of the source cannot be read.
    Source {
        /// What.
        path: PathBuf,
        /// What was to be done with it.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It changed while it was read.
    Changed {
        /// What did.
        path: PathBuf,
    },
    /// The source says what cannot be.
    Bad {
        /// Of what.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The volume refused.
    Volume {
        /// What was to be made.
        path: PathBuf,
        /// What it said.
        source: volume::Error,
    },
}

impl Error {
    pub(crate) fn source(path: &[u8], doing: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Source { path: path_of(path), doing, source: source.into() }
    }

    pub(crate) fn bad(path: &[u8], why: impl Into<String>) -> Self {
        Self::Bad { path: path_of(path), why: why.into() }
    }

    pub(crate) fn volume(path: &[u8]) -> impl FnOnce(volume::Error) -> Self + '_ {
        move |source| Self::Volume { path: Path::new("/").join(path_of(path)), source }
    }

    /// Whether something of the source could not be read: other files of it may be all right. What changes while it is
    /// read, and what was asked for wrongly, is another matter.
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

fn path_of(path: &[u8]) -> PathBuf {
    OsStr::from_bytes(path).into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A path's `Debug` escapes what a terminal must not be given.
            Self::Source { path, doing, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "{path:?}: cannot {doing}: {source}: run it as a user who may read everything there"
                )
            }
            Self::Source { path, doing, source } => write!(f, "{path:?}: cannot {doing}: {source}"),
            Self::Changed { path } => {
                write!(f, "{path:?} changed while it was read: run it again when nobody writes there")
            }
            Self::Bad { path, why } => write!(f, "{path:?}: {why}"),
            Self::Volume { source, .. } if source.errno() == base::errno::ENOSPC && source.is_of_device() => {
                write!(
                    f,
                    "{source}: there is no room where the image is made: make some, or make it elsewhere"
                )
            }
            Self::Volume { path, .. } if self.is_full() => {
                write!(f, "{path:?} in the volume: it is full: give it more room with --size or --free")
            }
            Self::Volume { path, source } => write!(f, "{path:?} in the volume: {source}"),
        }
    }
}

/// The message tells all causes, so there is none below it.
impl std::error::Error for Error {}
