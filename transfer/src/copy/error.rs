//! Why a file was not copied.

use std::fmt;
use std::io;

use base::errno::Errno;

use super::ends::Location;
use crate::syscalls::HostError;

/// One of the two trees of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySide {
    /// The tree that is read.
    Source,
    /// The tree that is changed.
    Target,
}

/// A file that was not copied, or not completely.
///
/// The message has the path, quoted, and the reason; [`describe`](CopyReason::describe) makes messages in which paths
/// are written differently.
#[derive(Debug)]
#[non_exhaustive]
pub struct CopyError {
    /// The tree of the path.
    pub side: CopySide,
    /// The path: of the source, if a file was not copied, even if the reason is in the target; of the target, if
    /// nothing can be copied to it, or if metadata of a directory could not be set.
    pub path: Vec<u8>,
    /// The target, if it could not be examined, created or opened.
    pub target: Option<Vec<u8>>,
    /// The reason.
    pub reason: CopyReason,
    /// Whether the source could not be read.
    is_unreadable: bool,
}

impl CopyError {
    /// An error about the target of all sources.
    pub(super) fn of_target(path: &[u8], reason: CopyReason) -> Self {
        let (side, path) = (CopySide::Target, path.to_vec());
        Self { side, path, target: None, reason, is_unreadable: false }
    }

    /// Whether the source could not be read, so that it is skipped with
    /// [`ignore_unreadable`](super::CopyRules::ignore_unreadable). Sources that are refused are not such errors.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Errno of the failed call; `None` if the copy was refused without one.
    pub fn errno(&self) -> Option<Errno> {
        self.reason.errno()
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", debug(&self.path))?;
        if let Some(target) = &self.target {
            write!(f, "{}: ", debug(target))?;
        }
        self.reason.fmt(f)
    }
}

/// The message contains all causes, so `source` returns none.
impl std::error::Error for CopyError {}

/// A path for a message: `Debug` escapes control characters.
fn debug(path: &[u8]) -> String {
    format!("{:?}", crate::error::path_of(path))
}

/// Why a file was not copied, or nothing was.
#[derive(Debug)]
#[non_exhaustive]
pub enum CopyReason {
    /// A system call failed.
    Host {
        /// What failed, after "cannot".
        action: Option<&'static str>,
        /// The error.
        errno: Errno,
    },
    /// A file cannot be created on the host.
    Create {
        /// File type, as a noun.
        what: &'static str,
        /// The error.
        errno: Errno,
    },
    /// An extended attribute of a file on the host cannot be changed.
    Attribute {
        /// What failed, after "cannot".
        action: &'static str,
        /// Name of the attribute.
        name: Vec<u8>,
        /// The error.
        errno: Errno,
    },
    /// A call of an open volume failed.
    Volume(volume::Error),
    /// A volume cannot be read.
    Read(read::Error),
    /// The source does not exist.
    NotFound,
    /// The path ends with a slash, and the file is not a directory.
    NotDirectory,
    /// The source is a directory, and the copy is not recursive.
    IsDirectory,
    /// The source is a socket, and the copy is not recursive.
    IsSocket,
    /// The source is a named pipe, which may never have a writer, and the copy is not recursive.
    IsNamedPipe,
    /// The source is a special file in a volume, and the copy is not recursive.
    NoContents,
    /// A directory has an entry with an invalid name.
    InvalidName,
    /// The source has a file type that XFS does not support.
    UnknownType,
    /// The source got another file type during the copy.
    TypeChanged,
    /// The source was replaced during the copy.
    Replaced,
    /// The target was removed during the copy.
    Removed,
    /// The directory contains itself, by a symlink or by damage.
    Loop,
    /// Source and target are one file.
    SameFile {
        /// The target.
        target: Vec<u8>,
    },
    /// The source is a directory, and the target is not.
    OverwritesFile {
        /// The target.
        target: Vec<u8>,
    },
    /// The target is a directory, and the source is not.
    OverwritesDirectory {
        /// The target.
        target: Vec<u8>,
    },
    /// The target was created from another source.
    JustCreated {
        /// The target.
        target: Vec<u8>,
    },
    /// The target is a special file.
    NotRegular {
        /// The target.
        target: Vec<u8>,
    },
    /// The target is within the source.
    IntoItself {
        /// The source.
        source: Vec<u8>,
        /// The target.
        target: Vec<u8>,
    },
    /// Another name of the directory was copied.
    CopiedAlready {
        /// Path of the copy.
        target: Vec<u8>,
    },
    /// The target is a symlink to a file that does not exist.
    DanglingLink,
    /// The directory for the target does not exist in the volume.
    NoParent,
    /// Sources are copied into the target, which does not exist.
    TargetMissing,
    /// Sources are copied into the target, which is not a directory.
    TargetNotDirectory,
    /// Several sources cannot be copied to one target.
    SeveralSources,
}

impl CopyReason {
    /// Errno of the failed call; `None` if there was none.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Host { errno, .. } | Self::Create { errno, .. } | Self::Attribute { errno, .. } => {
                Some(*errno)
            }
            Self::Volume(error) => Some(error.errno()),
            Self::Read(error) => Some(error.errno()),
            _ => None,
        }
    }

    /// The message. `quote` writes the paths of a side, and names of attributes, which have no side.
    pub fn describe(&self, quote: &dyn Fn(Option<CopySide>, &[u8]) -> String) -> String {
        let target = |path: &[u8]| quote(Some(CopySide::Target), path);
        let fixed = match self {
            Self::Host { action: Some(action), errno } => {
                return format!("cannot {action}: {}", system(*errno));
            }
            Self::Host { action: None, errno } => return system(*errno).to_string(),
            Self::Create { what, errno } => {
                return format!("{}cannot create the {what}: {}", hint(*errno), system(*errno));
            }
            Self::Attribute { action, name, errno } => {
                return format!("cannot {action} the attribute {}: {}", quote(None, name), system(*errno));
            }
            Self::Volume(error) => return error.to_string(),
            Self::Read(error) => return error.to_string(),
            Self::SameFile { target: path } => return format!("is the same file as {}", target(path)),
            Self::OverwritesFile { target: path } => {
                return format!("cannot overwrite non-directory {} with a directory", target(path));
            }
            Self::OverwritesDirectory { target: path } => {
                return format!("cannot overwrite directory {} with a non-directory", target(path));
            }
            Self::JustCreated { target: path } => {
                return format!("will not overwrite just-created {}", target(path));
            }
            Self::NotRegular { target: path } => {
                return format!("not writing to {}, which is not a regular file", target(path));
            }
            Self::IntoItself { source, target: path } => {
                let source = quote(Some(CopySide::Source), source);
                return format!("cannot copy a directory, {source}, into itself, {}", target(path));
            }
            Self::CopiedAlready { target: path } => {
                return format!("was copied to {} already; directories cannot have hard links", target(path));
            }
            Self::NotFound => "no such file or directory",
            Self::NotDirectory => "is not a directory",
            Self::IsDirectory => "is a directory",
            Self::IsSocket => "is a socket",
            Self::IsNamedPipe => "is a named pipe",
            Self::NoContents => "is a device, pipe or socket without contents in an image",
            Self::InvalidName => "has an entry with an invalid name, which was skipped",
            Self::UnknownType => "has a file type that XFS does not support",
            Self::TypeChanged => "changed its type during the copy",
            Self::Replaced => "was replaced during the copy",
            Self::Removed => "was removed during the copy",
            Self::Loop => "directory loop, by a symbolic link or by damage",
            Self::DanglingLink => "not writing through a dangling symbolic link",
            Self::NoParent => "no such directory in the volume",
            Self::TargetMissing => "no such directory",
            Self::TargetNotDirectory => "target is not a directory",
            Self::SeveralSources => "only one source can be copied to one name",
        };
        fixed.into()
    }

    /// Whether it is an error of the system or of a volume, and not a refusal.
    fn is_failure(&self) -> bool {
        self.errno().is_some()
    }
}

impl fmt::Display for CopyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&|_, path| debug(path)))
    }
}

/// The error with the message of the system.
fn system(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.get())
}

/// What an error of creating a file on the host means.
fn hint(errno: Errno) -> &'static str {
    match errno {
        base::errno::ENOENT => "no such directory: ",
        base::errno::EPERM => "requires root: ",
        _ => "",
    }
}

/// The errno of a system call in the type of this library.
pub(super) fn number(errno: rustix::io::Errno) -> Errno {
    Errno::new(errno.raw_os_error())
}

impl From<rustix::io::Errno> for CopyReason {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Host { action: None, errno: number(errno) }
    }
}

impl From<HostError> for CopyReason {
    fn from(HostError { action, errno }: HostError) -> Self {
        Self::Host { action: Some(action), errno: number(errno) }
    }
}

impl From<volume::Error> for CopyReason {
    fn from(error: volume::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<read::Error> for CopyReason {
    fn from(error: read::Error) -> Self {
        Self::Read(error)
    }
}

/// Result of a call of an end.
pub(crate) type Reasoned<T> = Result<T, CopyReason>;

/// Why the engine did not copy a file.
pub(super) enum Failure {
    /// The copy was cancelled.
    Cancelled,
    /// See [`CopyError`].
    Failed { reason: CopyReason, target: Option<Vec<u8>>, is_unreadable: bool },
}

impl From<CopyReason> for Failure {
    fn from(reason: CopyReason) -> Self {
        Self::Failed { reason, target: None, is_unreadable: false }
    }
}

impl Failure {
    /// Adds the target to a reason.
    pub fn at<D>(target: &Location<D>) -> impl FnOnce(CopyReason) -> Self {
        move |reason| Self::Failed { reason, target: Some(target.shown.clone()), is_unreadable: false }
    }

    /// Whether the source could not be read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Failed { is_unreadable: true, .. })
    }

    /// The error about a path; `None` if the copy was cancelled.
    pub fn into_error(self, side: CopySide, path: &[u8]) -> Option<CopyError> {
        match self {
            Self::Cancelled => None,
            Self::Failed { reason, target, is_unreadable } => {
                Some(CopyError { side, path: path.to_vec(), target, reason, is_unreadable })
            }
        }
    }
}

/// Result of reading a source: separates failures from refusals.
pub(super) fn read<T>(result: Reasoned<T>) -> Result<T, Failure> {
    result.map_err(|reason| {
        let is_unreadable = reason.is_failure();
        Failure::Failed { reason, target: None, is_unreadable }
    })
}
