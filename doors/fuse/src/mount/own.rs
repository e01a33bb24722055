//! Mounting by the system call, which takes the right to do so.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
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
    let root = rustix::fs::stat(&wanted.directory)?;
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
    rustix::mount::mount(source, &wanted.directory, TYPE, flags(wanted), options.as_c_str())?;
    Ok(device)
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
