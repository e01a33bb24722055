//! Progress, messages and cancellation of a transfer.
//!
//! | part | subject |
//! |---|---|
//! | [`Progress`] | callbacks; every method has a default that does nothing |
//! | [`Notice`] | a message about one file |
//! | [`Cancel`] | a flag that stops a transfer |

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::{Error, Result};

/// Number of files and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files of all types, including directories.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
}

/// Receives the progress of a transfer. The threads of the transfer call it one at a time.
pub trait Progress: Sync {
    /// The expected total. Not called if it is unknown.
    fn expect(&self, _total: Counts) {}

    /// What has been transferred so far. Called often: at least once per file.
    fn advance(&self, _done: Counts) {}

    /// An image has reached a phase.
    fn phase(&self, _phase: Phase) {}

    /// A message for the user.
    fn notice(&self, _notice: &Notice) {}
}

/// Ignores everything.
impl Progress for () {}

/// Phases of building an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Names and sizes of the sources are known.
    Surveyed,
    /// The volume was too small; a larger one is created.
    TooSmall,
    /// All sources were imported.
    Filled,
    /// The volume was unmounted.
    Unmounted,
    /// Free space at the end of the volume was removed.
    Minimized,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Surveyed => "surveyed the sources",
            Self::TooSmall => "too small, creating a larger volume",
            Self::Filled => "filled",
            Self::Unmounted => "unmounted",
            Self::Minimized => "minimized",
        })
    }
}

/// A message about one file. Displayed with its path, quoted.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The type of message.
    pub kind: NoticeKind,
    /// The path of the file in the source of the transfer.
    pub path: Vec<u8>,
    /// The message, without the path.
    pub message: String,
}

/// Types of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The file could not be read, or only in part. An import, and an extraction with `skip_unreadable`, skip it.
    Unreadable,
    /// The file could not be created.
    Failed,
    /// The file was transferred, but may be inconsistent.
    Warning,
    /// The target cannot store files of this type: it was skipped.
    NotStored,
    /// The transfer waits until another program closes the image.
    Waiting,
}

impl Notice {
    pub(crate) fn new(kind: NoticeKind, path: &[u8], message: impl fmt::Display) -> Self {
        Self { kind, path: path.to_vec(), message: message.to_string() }
    }

    /// Size in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.path.capacity() + self.message.capacity()
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Debug` of a path escapes control characters.
        write!(f, "{:?}: {}", path_of(&self.path), self.message)
    }
}

fn path_of(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// Cancels a transfer from another thread, or from a callback. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Makes the transfer fail with [`Error::Cancelled`] before its next file.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Fails if the transfer is cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
