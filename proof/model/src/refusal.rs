//! Why an operation does nothing, with the error numbers of Linux.

/// A refusal that the rules of the tree demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// `EPERM`: a second name for a directory.
    NotPermitted,
    /// `ENOENT`
    NoEntry,
    /// `EBUSY`: `.` and `..` are not renamed.
    Busy,
    /// `EEXIST`
    Exists,
    /// `ENOTDIR`
    NotDirectory,
    /// `EISDIR`
    IsDirectory,
    /// `EINVAL`
    Invalid,
    /// `ENAMETOOLONG`
    NameTooLong,
    /// `ENOTEMPTY`
    NotEmpty,
}

impl Refusal {
    /// The error number.
    pub fn errno(self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::NoEntry => 2,
            Self::Busy => 16,
            Self::Exists => 17,
            Self::NotDirectory => 20,
            Self::IsDirectory => 21,
            Self::Invalid => 22,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
        }
    }
}

/// No space left: an engine may say it where the model knows no such bound.
pub const ENOSPC: i32 = 28;
/// Input/output error, also what a volume says that was shut down.
pub const EIO: i32 = 5;
