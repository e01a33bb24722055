//! The end of a mount.

use std::io;
use std::path::Path;

use rustix::mount::UnmountFlags;

use super::helper;

/// Takes a mount away; `lazily`, even one that is in use, which then ends when nobody uses it any more.
///
/// # Errors
/// `EBUSY` where it is in use, `EINVAL` where nothing is mounted there; what `fusermount3` says.
pub fn unmount(directory: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() } | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(directory, flags) {
        Err(rustix::io::Errno::PERM) => helper::unmount(directory, lazily),
        done => Ok(done?),
    }
}
