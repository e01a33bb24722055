//! What is judged against the model: anything that can do what files systems do, by inode number.

use std::collections::BTreeMap;
use std::fmt;

use crate::facts::Facts;
use crate::operation::{Change, How, Name, New};

/// An error that a subject gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its number.
    pub errno: i32,
    /// Its words.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}: {}", self.errno, self.message)
    }
}

impl std::error::Error for Failure {}

/// For whoever tells what went wrong in words.
impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

/// The answer of a subject.
pub type Answer<T> = Result<T, Failure>;

/// A volume under test. Every call is one of the engine's, with inode numbers as it gave them.
pub trait Subject: Send + Sync {
    /// The number of the root directory.
    fn root(&self) -> u64;
    /// Finds a name.
    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64>;
    /// Makes a file of any type.
    fn create(&self, dir: u64, name: &[u8], new: &New) -> Answer<u64>;
    /// Adds a name to a file that has one, or that is held without one.
    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()>;
    /// Takes a name away.
    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()>;
    /// Removes a directory.
    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()>;
    /// Renames. The identity in [`How::Whiteout`] means nothing to the subject.
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), how: How) -> Answer<()>;
    /// Makes a file without a name and holds it.
    fn anonymous(&self, dir: u64, new: &New) -> Answer<u64>;
    /// Opens a file once more.
    fn hold(&self, number: u64) -> Answer<()>;
    /// Closes it as often as it was opened.
    fn release(&self, number: u64) -> Answer<()>;
    /// Tells of a file. The times are always there.
    fn stat(&self, number: u64) -> Answer<Facts>;
    /// Lists a directory without `.` and `..`.
    fn list(&self, dir: u64) -> Answer<BTreeMap<Name, u64>>;
    /// Changes metadata.
    fn set(&self, number: u64, change: &Change) -> Answer<()>;
    /// Makes everything so far survive.
    fn sync(&self) -> Answer<()>;
}
