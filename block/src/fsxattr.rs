//! Inode flags and project ids of files of the host (`FS_IOC_FSGETXATTR`). It is in this layer because an `ioctl` needs
//! `unsafe`.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `struct fsxattr` of `linux/fs.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FsXattr {
    /// The `FS_XFLAG_*` bits.
    pub xflags: u32,
    /// The extent size hint, in bytes; 0 for none.
    pub extsize: u32,
    /// The number of data extents; ignored when setting.
    pub nextents: u32,
    /// The project id.
    pub projid: u32,
    /// The extent size hint for copy-on-write, in bytes; 0 for none.
    pub cowextsize: u32,
    /// Padding, preserved.
    pub(crate) pad: [u8; 8],
}

const GET: Opcode = opcode::read::<FsXattr>(b'X', 31);
const SET: Opcode = opcode::write::<FsXattr>(b'X', 32);

/// Reads the flags and the project id of an open file or directory.
///
/// # Errors
/// `ENOTTY` if the file system does not support the call.
pub fn get(file: impl AsFd) -> io::Result<FsXattr> {
    // SAFETY: the opcode encodes the size of `FsXattr`, which has the layout of the kernel's structure, 28 bytes of
    // integers; the kernel writes all of it.
    let value = unsafe { ioctl(file, Getter::<GET, FsXattr>::new()) }?;
    Ok(value)
}

/// Sets the flags and the project id of an open file or directory.
///
/// # Errors
/// `EPERM` without the privilege, `EINVAL` for flags that this type of file cannot have, `ENOTTY` if the
/// file system does not support the call.
pub fn set(file: impl AsFd, value: FsXattr) -> io::Result<()> {
    // SAFETY: as in `get`; the kernel only reads the structure.
    unsafe { ioctl(file, Setter::<SET, FsXattr>::new(value)) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_matches_the_kernel() {
        assert_eq!(std::mem::size_of::<FsXattr>(), 28);
    }
}
