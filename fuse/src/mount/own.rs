//! Mounting by the system call, which takes the right to do so.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::MountFlags;

use super::{TYPE, Wanted};

/// The kernel's device.
const DEVICE: &str = "/dev/fuse";

/// See [`mount`](super::mount).
pub fn mount(wanted: &Wanted) -> io::Result<OwnedFd> {
    let device =
        rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!("{DEVICE}: {error} (does this kernel have FUSE? try modprobe fuse)"),
            )
        })?;
    let place = place(&wanted.directory)?;
    let root = rustix::fs::fstat(&place)?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut options = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        root.st_mode & 0o170_000,
        user.as_raw(),
        group.as_raw(),
    );
    if wanted.allow_other {
        options.push_str(",allow_other");
    }
    let (source, options) = (wanted.source.as_str(), CString::new(options)?);
    let target = format!("/proc/self/fd/{}", place.as_raw_fd());
    rustix::mount::mount(source, target, TYPE, flags(wanted), options.as_c_str())?;
    Ok(device)
}

/// Where a volume is to be mounted, by a path without symbolic links. If there is one, somebody has put it there since
/// the path was looked up, to have something of root's covered.
fn place(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, and where a sandbox refuses the call, the last component alone can be held to it.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            Ok(rustix::fs::open(directory, flags | OFlags::NOFOLLOW, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// See [`remount`](super::remount).
pub fn remount(wanted: &Wanted) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(&wanted.directory, flags(wanted), c"")?)
}

fn flags(wanted: &Wanted) -> MountFlags {
    let given = [
        (wanted.read_only, MountFlags::RDONLY),
        (wanted.no_suid, MountFlags::NOSUID),
        (wanted.no_dev, MountFlags::NODEV),
        (wanted.no_exec, MountFlags::NOEXEC),
        (wanted.no_atime, MountFlags::NOATIME),
    ];
    given.iter().filter(|(given, _)| *given).fold(MountFlags::empty(), |all, (_, flag)| all | *flag)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// While the volume was opened, a user could replace the mount point by a link to a directory of root's.
    #[test]
    fn no_link_leads_to_another_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(path.join("real/mnt")).unwrap();
        symlink(path.join("real/mnt"), path.join("link")).unwrap();
        symlink("real", path.join("above")).unwrap();
        assert!(place(&path.join("real/mnt")).is_ok());
        assert_eq!(place(&path.join("link")).unwrap_err().raw_os_error(), Some(base::errno::ELOOP.get()));
        assert_eq!(
            place(&path.join("above/mnt")).unwrap_err().raw_os_error(),
            Some(base::errno::ELOOP.get())
        );
    }
}
