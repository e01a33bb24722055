//! What a process has from the one that started it.

use std::mem::MaybeUninit;
use std::{io, ptr};

/// Signals that the process which started this one had blocked reach this thread, and those that it starts from now on.
///
/// # Errors
/// What the system reports.
#[allow(unsafe_code, reason = "neither std nor rustix sets the mask of signals")]
pub fn unblock_signals() -> io::Result<()> {
    let mut none = MaybeUninit::uninit();
    // SAFETY: the first call fills the set which the second one reads; no old mask is asked for.
    let failed = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// Programs that this process starts from now on inherit none of its descriptors but the three standard ones: whoever
/// waits for the end of a pipe or for a lock would wait for them, too.
///
/// # Errors
/// What the system reports: before Linux 5.11 it knows no such call.
#[allow(unsafe_code, reason = "neither std nor rustix marks a range of descriptors")]
pub fn keep_descriptors() -> io::Result<()> {
    // SAFETY: nothing is closed; descriptors are only marked.
    let failed = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
