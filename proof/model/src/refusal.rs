//! Reasons for refusing an operation, with the error numbers of Linux.

/// Why the rules of the tree refuse an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// `EPERM`: a hard link to a directory.
    NotPermitted,
    /// `ENOENT`
    NoEntry,
    /// `EBUSY`: `.` and `..` cannot be renamed.
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

/// No space left. The model has no such limit; a subject may return it.
pub const ENOSPC: i32 = 28;
/// Input/output error, also returned by a volume after a shutdown.
pub const EIO: i32 = 5;
