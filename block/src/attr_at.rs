//! Attributes of a file of the host by directory and name. Opening the file would be slower, and needs permission to
//! read it.
//!
//! It is in this layer because the calls, which no crate has yet, need `unsafe`. Older kernels return `ENOSYS`;
//! [`fsxattr`](crate::fsxattr) works on all.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use libc::{c_char, c_long, c_void};
use rustix::path::Arg;

use crate::fsxattr::FsXattr;

/// `listxattrat` (Linux 6.13) and `file_getattr` (Linux 6.17): numbers of `asm-generic/unistd.h`.
const LISTXATTRAT: c_long = 465;
const FILE_GETATTR: c_long = 468;

/// Whether this architecture uses these numbers.
const HAS_GENERIC_NUMBERS: bool = cfg!(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "powerpc64",
    target_arch = "s390x",
    target_arch = "loongarch64"
)) && cfg!(target_pointer_width = "64");

/// `struct file_attr` of `linux/fs.h`, version 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct FileAttr {
    xflags: u64,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
}

/// Size of the list of extended attribute names of a file (`listxattrat`). Symbolic links are not followed.
///
/// # Errors
/// `ENOSYS` if the kernel does not support it, `EOPNOTSUPP` if the file system does not.
pub fn xattr_list_size(dir: impl AsFd, name: &[u8]) -> io::Result<usize> {
    let dir = dir.as_fd();
    call_with_name(name, |name| {
        // SAFETY: the descriptor is open and the name ends with NUL; without a buffer nothing is written.
        unsafe {
            libc::syscall(
                LISTXATTRAT,
                dir.as_raw_fd(),
                name,
                libc::AT_SYMLINK_NOFOLLOW,
                std::ptr::null_mut::<c_void>(),
                0usize,
            )
        }
    })
}

/// Flags, extent size hints and project id of a file (`file_getattr`), like [`fsxattr::get`](crate::fsxattr::get).
/// Symbolic links are not followed.
///
/// # Errors
/// `ENOSYS` if the kernel does not support it, `EOPNOTSUPP` or `ENOTTY` if the file system does not.
pub fn fsxattr(dir: impl AsFd, name: &[u8]) -> io::Result<FsXattr> {
    let dir = dir.as_fd();
    let mut found = FileAttr::default();
    call_with_name(name, |name| {
        // SAFETY: the descriptor is open and the name ends with NUL; the kernel writes at most the given size, which is
        // that of the structure, and its fields are integers.
        unsafe {
            libc::syscall(
                FILE_GETATTR,
                dir.as_raw_fd(),
                name,
                &raw mut found,
                size_of::<FileAttr>(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        }
    })?;
    let FileAttr { xflags, extsize, nextents, projid, cowextsize } = found;
    // The upper half of `xflags` has no flags of the older call.
    Ok(FsXattr { xflags: xflags as u32, extsize, nextents, projid, cowextsize, ..FsXattr::default() })
}

fn call_with_name(name: &[u8], call: impl FnOnce(*const c_char) -> c_long) -> io::Result<usize> {
    if !HAS_GENERIC_NUMBERS {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let result = name.into_with_c_str(|name| Ok(call(name.as_ptr())))?;
    // A negative result is an error; the number is in `errno`.
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_matches_the_kernel() {
        assert_eq!(size_of::<FileAttr>(), 24);
    }

    #[test]
    fn results_agree_with_an_open_file() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let dir = std::fs::File::open(directory.path())?;
        let file = std::fs::File::create(directory.path().join("file"))?;
        let unsupported =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP));
        match xattr_list_size(&dir, b"file") {
            Err(error) if unsupported(&error) => return Ok(()),
            length => assert_eq!(length?, rustix::fs::flistxattr(&file, &mut [0; 0][..])?),
        }
        if rustix::fs::fsetxattr(&file, "user.n", b"v", rustix::fs::XattrFlags::empty()).is_ok() {
            assert!(xattr_list_size(&dir, b"file")? >= b"user.n\0".len());
        }
        match fsxattr(&dir, b"file") {
            Err(error) if unsupported(&error) => {}
            found => {
                let opened = crate::fsxattr::get(&file)?;
                assert_eq!(found?, opened);
            }
        }
        assert_eq!(fsxattr(&dir, b"none").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        Ok(())
    }
}
