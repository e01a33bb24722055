//! Asking the system to start writing what its page cache took (`sync_file_range`).
//!
//! It lives here because the call needs `unsafe`, and this rung is where that is at home.

use std::os::fd::{AsFd, AsRawFd};

/// Asks for it and waits for nothing; whether it happens is the system's affair, and its refusal is nobody's problem: a
/// flush tells what went wrong.
#[cfg(target_os = "linux")]
pub fn start(file: impl AsFd, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else { return };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers alone, and the descriptor is open as long as `file` is borrowed.
    let _ = unsafe { libc::sync_file_range(fd, offset, length, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
pub fn start(_file: impl AsFd, _offset: u64, _length: u64) {}
