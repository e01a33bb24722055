//! The signal mask and the descriptors that a process inherits.

use std::mem::MaybeUninit;
use std::{io, ptr};

/// Unblocks all signals that the parent process had blocked, for this thread and the threads that it starts.
///
/// # Errors
/// The error of the system call.
#[allow(unsafe_code, reason = "neither std nor rustix sets the mask of signals")]
pub fn unblock_signals() -> io::Result<()> {
    let mut none = MaybeUninit::uninit();
    // SAFETY: the first call initializes the set that the second one reads; the old mask is not requested.
    let failed = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// Marks all descriptors except the three standard ones as close-on-exec, so that child processes do not keep pipes or
/// locks open.
///
/// # Errors
/// The error of the system call; before Linux 5.11 it does not exist.
#[allow(unsafe_code, reason = "neither std nor rustix marks a range of descriptors")]
pub fn close_descriptors_on_exec() -> io::Result<()> {
    // SAFETY: no descriptor is closed; they are only marked.
    let failed = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
