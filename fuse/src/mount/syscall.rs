//! Mounting by system call, which requires `CAP_SYS_ADMIN`.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::MountFlags;

use super::{MountConfig, TYPE};

/// The FUSE device.
const DEVICE: &str = "/dev/fuse";

/// See [`mount`](super::mount).
pub fn mount(config: &MountConfig) -> io::Result<OwnedFd> {
    let device =
        rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!("{DEVICE}: {error} (does this kernel have FUSE? try modprobe fuse)"),
            )
        })?;
    let mount_point = open_mount_point(&config.directory)?;
    let root = rustix::fs::fstat(&mount_point)?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut options = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        root.st_mode & 0o170_000,
        user.as_raw(),
        group.as_raw(),
    );
    if config.allow_other {
        options.push_str(",allow_other");
    }
    let (source, options) = (config.source.as_str(), CString::new(options)?);
    let target = format!("/proc/self/fd/{}", mount_point.as_raw_fd());
    rustix::mount::mount(source, target, TYPE, flags(config), options.as_c_str())?;
    Ok(device)
}

/// Opens the mount point by a path without symbolic links. A symbolic link now means that another user has replaced a
/// component since the path was resolved, to have a directory of root covered.
fn open_mount_point(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, and if a sandbox refuses the call, only the last component can be checked.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            Ok(rustix::fs::open(directory, flags | OFlags::NOFOLLOW, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// Changes the flags of a mount. `allow_other` and the source do not change. A server that was started read-only stays
/// read-only.
///
/// # Errors
/// `EPERM` unless the caller is root; `EINVAL` if nothing is mounted; `EBUSY` if files are open for writing.
pub fn remount(config: &MountConfig) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(&config.directory, flags(config), c"")?)
}

fn flags(config: &MountConfig) -> MountFlags {
    let flags = [
        (config.read_only, MountFlags::RDONLY),
        (config.no_suid, MountFlags::NOSUID),
        (config.no_dev, MountFlags::NODEV),
        (config.no_exec, MountFlags::NOEXEC),
        (config.no_atime, MountFlags::NOATIME),
    ];
    flags.iter().filter(|(is_set, _)| *is_set).fold(MountFlags::empty(), |all, (_, flag)| all | *flag)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// While the volume was opened, a user could replace the mount point with a symbolic link to a directory of root.
    #[test]
    fn symbolic_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(path.join("real/mnt")).unwrap();
        symlink(path.join("real/mnt"), path.join("link")).unwrap();
        symlink("real", path.join("above")).unwrap();
        assert!(open_mount_point(&path.join("real/mnt")).is_ok());
        assert_eq!(
            open_mount_point(&path.join("link")).unwrap_err().raw_os_error(),
            Some(base::errno::ELOOP.get())
        );
        assert_eq!(
            open_mount_point(&path.join("above/mnt")).unwrap_err().raw_os_error(),
            Some(base::errno::ELOOP.get())
        );
    }
}
