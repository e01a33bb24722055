//! Open file description locks on single bytes (`fcntl_locking(2)`). rustix has only locks that belong to a process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use libc::{F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_UNLCK, F_WRLCK};

/// Takes the write lock of a byte. Closing the file releases it.
pub fn write_lock(file: &File, byte: i64) -> io::Result<()> {
    call(file, F_OFD_SETLK, F_WRLCK, byte, 1).map(drop)
}

/// Takes the read lock of a byte. Closing the file releases it.
pub fn read_lock(file: &File, byte: i64) -> io::Result<()> {
    call(file, F_OFD_SETLK, F_RDLCK, byte, 1).map(drop)
}

/// The first byte of another holder's lock in a range; a length of 0 means no end.
pub fn find(file: &File, byte: i64, length: i64) -> Option<i64> {
    let found = call(file, F_OFD_GETLK, F_WRLCK, byte, length).ok()?;
    (i32::from(found.l_type) != F_UNLCK).then_some(found.l_start)
}

/// Waits until no one else holds the write lock of a byte.
pub fn wait(file: &File, byte: i64) -> io::Result<()> {
    loop {
        match call(file, F_OFD_SETLKW, F_RDLCK, byte, 1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => {
                waited?;
                return call(file, F_OFD_SETLK, F_UNLCK, byte, 1).map(drop);
            }
        }
    }
}

fn call(file: &File, command: i32, lock_type: i32, start: i64, length: i64) -> io::Result<libc::flock64> {
    // SAFETY: a structure of integers, for which zero is a valid value.
    let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
    // The constants fit; the types of the fields depend on the architecture.
    lock.l_type = lock_type as _;
    lock.l_whence = libc::SEEK_SET as _;
    (lock.l_start, lock.l_len) = (start, length);
    // SAFETY: the commands access only this structure, and the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}
