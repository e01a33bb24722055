//! Locks of single bytes that belong to an open file (`fcntl_locking(2)`, open file description locks).
//!
//! It lives here because the call needs `unsafe`, and rustix has those of processes alone.

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd as _;

    use libc::{F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_UNLCK, F_WRLCK};

    /// Locks a byte for writing, as long as the file is open.
    pub fn place(file: &File, byte: i64) -> io::Result<()> {
        call(file, F_OFD_SETLK, F_WRLCK, (byte, 1)).map(drop)
    }

    /// Locks a byte for reading, as long as the file is open.
    pub fn share(file: &File, byte: i64) -> io::Result<()> {
        call(file, F_OFD_SETLK, F_RDLCK, (byte, 1)).map(drop)
    }

    /// The first byte of a lock by somebody else from `byte` on; a length of 0 has no end.
    pub fn find(file: &File, byte: i64, length: i64) -> Option<i64> {
        let found = call(file, F_OFD_GETLK, F_WRLCK, (byte, length)).ok()?;
        (i32::from(found.l_type) != F_UNLCK).then_some(found.l_start)
    }

    /// Waits until nobody else has a byte locked for writing.
    pub fn wait(file: &File, byte: i64) -> io::Result<()> {
        loop {
            match call(file, F_OFD_SETLKW, F_RDLCK, (byte, 1)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                waited => {
                    waited?;
                    return call(file, F_OFD_SETLK, F_UNLCK, (byte, 1)).map(drop);
                }
            }
        }
    }

    fn call(file: &File, command: i32, kind: i32, (start, length): (i64, i64)) -> io::Result<libc::flock64> {
        // SAFETY: a structure of plain integers, for which zero is a value.
        let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
        // These constants fit, whatever type the field has.
        lock.l_type = kind as _;
        lock.l_whence = libc::SEEK_SET as _;
        (lock.l_start, lock.l_len) = (start, length);
        // SAFETY: the commands read and write this structure alone, and the descriptor is open.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(lock),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod others {
    use std::fs::File;
    use std::io;

    pub fn place(_file: &File, _byte: i64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn share(_file: &File, _byte: i64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn find(_file: &File, _byte: i64, _length: i64) -> Option<i64> {
        None
    }

    pub fn wait(_file: &File, _byte: i64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(not(target_os = "linux"))]
pub use others::*;
