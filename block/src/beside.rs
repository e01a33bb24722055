//! What the host's file system keeps beside a file, by its name in an open directory: without opening the file, which
//! costs more than the answer, and which not everybody may.
//!
//! It lives here because calls that no crate has yet need `unsafe`, and this layer is where that is at home. Kernels
//! that are older than the calls answer `ENOSYS`; [`fsxattr`](crate::fsxattr) works everywhere.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use libc::{c_char, c_long, c_void};
use rustix::path::Arg;

use crate::fsxattr::FsXattr;

/// `listxattrat` (Linux 6.13) and `file_getattr` (Linux 6.17): numbers that nearly all architectures share, by
/// `asm-generic/unistd.h`.
const LISTXATTRAT: c_long = 465;
const FILE_GETATTR: c_long = 468;

/// Whether the numbers are those of this machine.
const IS_GENERIC: bool = cfg!(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "powerpc64",
    target_arch = "s390x",
    target_arch = "loongarch64"
)) && cfg!(target_pointer_width = "64");

/// `struct file_attr` of `linux/fs.h`, as it was at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct FileAttr {
    xflags: u64,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
}

/// Bytes that the names of a file's extended attributes take; of a link its own.
///
/// # Errors
/// `ENOSYS` where this kernel cannot tell, `EOPNOTSUPP` where the file system has none.
pub fn attribute_names(dir: impl AsFd, name: &[u8]) -> io::Result<usize> {
    let dir = dir.as_fd();
    by_name(name, |name| {
        // SAFETY: the descriptor is open and the name ends with NUL; no buffer is given, so nothing is written.
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

/// Flags, hints and project of a file, as [`fsxattr::get`](crate::fsxattr::get) tells of an open one.
///
/// # Errors
/// `ENOSYS` where this kernel cannot tell, `EOPNOTSUPP` or `ENOTTY` where the file system has none.
pub fn settings(dir: impl AsFd, name: &[u8]) -> io::Result<FsXattr> {
    let dir = dir.as_fd();
    let mut found = FileAttr::default();
    by_name(name, |name| {
        // SAFETY: the descriptor is open and the name ends with NUL; the kernel writes at most the size that it is
        // told, which is that of the structure, plain integers.
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
    let mut settings = FsXattr::default();
    settings.xflags = found.xflags as u32; // those of the older call
    (settings.extsize, settings.cowextsize) = (found.extsize, found.cowextsize);
    (settings.nextents, settings.projid) = (found.nextents, found.projid);
    Ok(settings)
}

fn by_name(name: &[u8], call: impl FnOnce(*const c_char) -> c_long) -> io::Result<usize> {
    if !IS_GENERIC {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let done = name.into_with_c_str(|name| Ok(call(name.as_ptr())))?;
    // Negative for an error, which is in `errno`.
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_the_kernels() {
        assert_eq!(size_of::<FileAttr>(), 24);
    }

    #[test]
    fn they_agree_with_an_opened_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let dir = std::fs::File::open(folder.path())?;
        let file = std::fs::File::create(folder.path().join("file"))?;
        let unknown =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP));
        match attribute_names(&dir, b"file") {
            Err(error) if unknown(&error) => return Ok(()),
            length => assert_eq!(length?, rustix::fs::flistxattr(&file, &mut [0; 0][..])?),
        }
        if rustix::fs::fsetxattr(&file, "user.n", b"v", rustix::fs::XattrFlags::empty()).is_ok() {
            assert!(attribute_names(&dir, b"file")? >= b"user.n\0".len());
        }
        match settings(&dir, b"file") {
            Err(error) if unknown(&error) => {}
            found => {
                let opened = crate::fsxattr::get(&file)?;
                assert_eq!(found?, opened);
            }
        }
        assert_eq!(settings(&dir, b"none").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        Ok(())
    }
}
