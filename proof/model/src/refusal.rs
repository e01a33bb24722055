//! Why an operation does nothing, with the error numbers of Linux.

/// A refusal that the rules of the tree demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// `EPERM`: a second name for a directory.
    NotPermitted,
    /// `ENOENT`
    NoEntry,
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
            Self::Exists => EEXIST,
            Self::NotDirectory => 20,
            Self::IsDirectory => 21,
            Self::Invalid => 22,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
        }
    }

    /// Whether an error number says the same. Where a directory is not empty, POSIX allows `EEXIST` as well, which
    /// the kernel's XFS gives from `rename`.
    pub fn is_said_by(self, errno: i32) -> bool {
        errno == self.errno() || (self == Self::NotEmpty && errno == EEXIST)
    }
}

const EEXIST: i32 = 17;
/// No space left: an engine may say it where the model knows no such bound.
pub const ENOSPC: i32 = 28;
/// Input/output error, also what a volume says that was shut down.
pub const EIO: i32 = 5;
