//! POSIX error numbers as Linux has them. FUSE and C callers need these exact values.

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such file or directory.
pub const ENOENT: i32 = 2;
/// Input/output error.
pub const EIO: i32 = 5;
/// No such place, or no such device.
pub const ENXIO: i32 = 6;
/// Something is too long.
pub const E2BIG: i32 = 7;
/// Not open for this.
pub const EBADF: i32 = 9;
/// Out of memory, or over a memory budget.
pub const ENOMEM: i32 = 12;
/// Not allowed.
pub const EACCES: i32 = 13;
/// In use.
pub const EBUSY: i32 = 16;
/// File exists.
pub const EEXIST: i32 = 17;
/// Not on one volume.
pub const EXDEV: i32 = 18;
/// A path component is not a directory.
pub const ENOTDIR: i32 = 20;
/// The object is a directory.
pub const EISDIR: i32 = 21;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// Not a control that this knows.
pub const ENOTTY: i32 = 25;
/// File too large.
pub const EFBIG: i32 = 27;
/// No space left.
pub const ENOSPC: i32 = 28;
/// Read-only file system.
pub const EROFS: i32 = 30;
/// Too many links.
pub const EMLINK: i32 = 31;
/// Out of range.
pub const ERANGE: i32 = 34;
/// File name too long.
pub const ENAMETOOLONG: i32 = 36;
/// No such call.
pub const ENOSYS: i32 = 38;
/// Directory not empty.
pub const ENOTEMPTY: i32 = 39;
/// Too many levels of symbolic links.
pub const ELOOP: i32 = 40;
/// What should be equal differs.
pub const EBADE: i32 = 52;
/// No such extended attribute.
pub const ENODATA: i32 = 61;
/// The other side's protocol is not understood.
pub const EPROTO: i32 = 71;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
/// The structure on disk is damaged (`EUCLEAN`, which XFS calls `EFSCORRUPTED`).
pub const EFSCORRUPTED: i32 = 117;
