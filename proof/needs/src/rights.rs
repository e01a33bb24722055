//! Privileges of the test process, and features of the kernel.

use std::fs::{File, read_to_string};
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use super::{command, newer_xfsprogs, tools};

/// Checks that root runs the test.
///
/// # Errors
/// Another user runs it.
pub fn root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err("the test needs root: run the tests as root".into())
}

/// Checks that this process can create images and mount them in a new mount namespace.
///
/// # Errors
/// What is missing, and the command that installs or enables it.
pub fn mounting() -> Result<(), String> {
    static READY: OnceLock<Result<(), String>> = OnceLock::new();
    READY.get_or_init(find_mounting).clone()
}

fn find_mounting() -> Result<(), String> {
    root()?;
    tools(&["unshare", "bash", "mount", "umount", "losetup"])?;
    tools(&["mkfs.xfs", "xfs_repair", "xfs_db", "xfs_io", "xfs_logprint"])?;
    newer_xfsprogs()?;
    if !command("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    {
        return Err("this process cannot mount: run the tests with CAP_SYS_ADMIN, as in a VM".into());
    }
    let free = command("losetup").arg("--find").output();
    let free = free.ok().filter(|found| found.status.success()).map(|found| found.stdout);
    if !free.is_some_and(|device| Path::new(String::from_utf8_lossy(&device).trim()).exists()) {
        return Err(
            "there are no loop devices: run modprobe loop, or the tests outside of a container".into()
        );
    }
    kernel_xfs()
}

fn kernel_xfs() -> Result<(), String> {
    let is_known = || read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("\txfs\n"));
    if !is_known() && tools(&["modprobe"]).is_ok() {
        // modprobe fails if XFS is built in; the list of file systems decides.
        let _ = command("modprobe").args(["--quiet", "xfs"]).status();
    }
    if is_known() { Ok(()) } else { Err("this kernel has no XFS".into()) }
}

/// Checks that this process can mount through FUSE.
///
/// # Errors
/// What is missing, and the command that installs or enables it.
pub fn fuse() -> Result<(), String> {
    tools(&["fusermount3"])?;
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|error| format!("/dev/fuse: {error}: run modprobe fuse"))
}
