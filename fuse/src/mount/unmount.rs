//! Unmounting.

use std::io;
use std::path::Path;

use rustix::mount::UnmountFlags;

use super::fusermount;

/// Unmounts. With `lazily` also a mount that is in use: it is detached, and ends with its last use.
///
/// # Errors
/// `EBUSY` if it is in use, `EINVAL` if nothing is mounted there; the message of `fusermount3`.
pub fn unmount(directory: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() } | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(directory, flags) {
        Err(rustix::io::Errno::PERM) => fusermount::unmount(directory, lazily),
        done => Ok(done?),
    }
}
