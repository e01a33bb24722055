//! POSIX error numbers with the values of Linux, which FUSE and C callers require.

use std::fmt;

/// An error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// Wraps a number as the kernel returns it, without the minus sign.
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> Self {
        errno.0
    }
}

/// Writes the symbolic name, such as `ENOSPC`.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(errno, _)| errno == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Declares constants, and the table of their names.
macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        $($(#[$doc])* pub const $name: Errno = Errno($number);)*

        const NAMES: &[(Errno, &str)] = &[$(($name, stringify!($name)),)*];
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = 1,
    /// No such file or directory.
    ENOENT = 2,
    /// Input/output error.
    EIO = 5,
    /// No such device or address.
    ENXIO = 6,
    /// Argument list too long.
    E2BIG = 7,
    /// Bad file descriptor.
    EBADF = 9,
    /// Try again.
    EAGAIN = 11,
    /// Out of memory, or over a memory budget.
    ENOMEM = 12,
    /// Permission denied.
    EACCES = 13,
    /// Device or resource busy.
    EBUSY = 16,
    /// File exists.
    EEXIST = 17,
    /// Cross-device link.
    EXDEV = 18,
    /// Not a directory.
    ENOTDIR = 20,
    /// Is a directory.
    EISDIR = 21,
    /// Invalid argument.
    EINVAL = 22,
    /// Too many open files in the system.
    ENFILE = 23,
    /// Unknown ioctl.
    ENOTTY = 25,
    /// File too large.
    EFBIG = 27,
    /// No space left on device.
    ENOSPC = 28,
    /// Read-only file system.
    EROFS = 30,
    /// Too many links.
    EMLINK = 31,
    /// Result out of range.
    ERANGE = 34,
    /// File name too long.
    ENAMETOOLONG = 36,
    /// Function not implemented.
    ENOSYS = 38,
    /// Directory not empty.
    ENOTEMPTY = 39,
    /// Too many levels of symbolic links.
    ELOOP = 40,
    /// Invalid exchange: compared data differs.
    EBADE = 52,
    /// No such extended attribute.
    ENODATA = 61,
    /// Protocol error.
    EPROTO = 71,
    /// Value too large for its type.
    EOVERFLOW = 75,
    /// Invalid multibyte character.
    EILSEQ = 84,
    /// Operation not supported.
    EOPNOTSUPP = 95,
    /// The connection was shut down.
    ESHUTDOWN = 108,
    /// Timed out.
    ETIMEDOUT = 110,
    /// Stale file handle: its file was removed.
    ESTALE = 116,
    /// Damaged on-disk structure (`EUCLEAN`, which XFS calls `EFSCORRUPTED`).
    EFSCORRUPTED = 117,
    /// Quota exceeded.
    EDQUOT = 122,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_writes_the_symbolic_name() {
        assert_eq!(format!("{ENOSPC} {EFSCORRUPTED:?}"), "ENOSPC EFSCORRUPTED");
        assert_eq!(Errno::new(4095).to_string(), "errno 4095");
    }
}
