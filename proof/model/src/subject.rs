//! The file system under test, called by inode number.

use std::collections::BTreeMap;
use std::fmt;

use crate::operation::{Name, NewFile, RenameMode, SetAttr};
use crate::stat::Stat;

/// An error of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Error number.
    pub errno: i32,
    /// Message.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}: {}", self.errno, self.message)
    }
}

impl std::error::Error for Failure {}

/// For callers whose errors are messages.
impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

/// Result of a call of a subject.
pub type Answer<T> = Result<T, Failure>;

/// A volume under test. Each method is one call of the engine; inode numbers are those that it returned.
pub trait Subject: Send + Sync {
    /// Returns the inode number of the root directory.
    fn root(&self) -> u64;
    /// Looks up a name.
    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64>;
    /// Creates a file of any type.
    fn create(&self, dir: u64, name: &[u8], new: &NewFile) -> Answer<u64>;
    /// Adds a name to a file that has one, or that is open without one.
    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()>;
    /// Removes a name.
    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()>;
    /// Removes a directory.
    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()>;
    /// Renames. The subject ignores the identity in [`RenameMode::Whiteout`].
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Answer<()>;
    /// Creates a file without a name and keeps it open (`O_TMPFILE`).
    fn anonymous(&self, dir: u64, new: &NewFile) -> Answer<u64>;
    /// Opens a file, once more if it is open.
    fn open(&self, number: u64) -> Answer<()>;
    /// Closes a file as often as it was opened.
    fn close(&self, number: u64) -> Answer<()>;
    /// Returns a file's metadata, always with timestamps.
    fn stat(&self, number: u64) -> Answer<Stat>;
    /// Lists a directory without `.` and `..`.
    fn list(&self, dir: u64) -> Answer<BTreeMap<Name, u64>>;
    /// Changes metadata.
    fn set(&self, number: u64, change: &SetAttr) -> Answer<()>;
    /// Makes all previous changes durable.
    fn sync(&self) -> Answer<()>;
}
