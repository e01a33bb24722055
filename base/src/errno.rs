//! POSIX error numbers with the values of Linux, which FUSE and C callers require.

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such file or directory.
pub const ENOENT: i32 = 2;
/// Input/output error.
pub const EIO: i32 = 5;
/// No such device or address.
pub const ENXIO: i32 = 6;
/// Argument list too long.
pub const E2BIG: i32 = 7;
/// Bad file descriptor.
pub const EBADF: i32 = 9;
/// Out of memory, or over a memory budget.
pub const ENOMEM: i32 = 12;
/// Permission denied.
pub const EACCES: i32 = 13;
/// Device or resource busy.
pub const EBUSY: i32 = 16;
/// File exists.
pub const EEXIST: i32 = 17;
/// Cross-device link.
pub const EXDEV: i32 = 18;
/// Not a directory.
pub const ENOTDIR: i32 = 20;
/// Is a directory.
pub const EISDIR: i32 = 21;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// Unknown ioctl.
pub const ENOTTY: i32 = 25;
/// File too large.
pub const EFBIG: i32 = 27;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Read-only file system.
pub const EROFS: i32 = 30;
/// Too many links.
pub const EMLINK: i32 = 31;
/// Result out of range.
pub const ERANGE: i32 = 34;
/// File name too long.
pub const ENAMETOOLONG: i32 = 36;
/// Function not implemented.
pub const ENOSYS: i32 = 38;
/// Directory not empty.
pub const ENOTEMPTY: i32 = 39;
/// Too many levels of symbolic links.
pub const ELOOP: i32 = 40;
/// Invalid exchange: compared data differs.
pub const EBADE: i32 = 52;
/// No such extended attribute.
pub const ENODATA: i32 = 61;
/// Protocol error.
pub const EPROTO: i32 = 71;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
/// Damaged on-disk structure (`EUCLEAN`, which XFS calls `EFSCORRUPTED`).
pub const EFSCORRUPTED: i32 = 117;
