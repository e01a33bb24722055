//! Tests on a volume mounted by the kernel or by Xebec. Such a test has two parts: the outer one creates and mounts the
//! volume in a new mount namespace, and runs the inner one there, an ignored test of the same program.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::built;
use crate::memory::Peaks;

/// Environment variable with the mount point, for the inner test.
const MOUNT: &str = "XEBEC_MOUNTED";

/// Creates a volume `$1`, mounts it on `$2` with the program `$5`, or with the kernel if that is empty, and runs the
/// test `$4` of the program `$3`.
const RUN: &str = r#"
truncate -s 512M "$1"
mkfs.xfs -q "$1"
if [ -z "$5" ]; then mount -t xfs -o loop,nouuid "$1" "$2"; else "$5" mount "$1" "$2"; fi
failed=0
"$3" --exact --ignored --nocapture "$4" || failed=$?
if [ -z "$5" ]; then umount "$2"; else "$5" umount "$2"; fi
[ $failed = 0 ]
xfs_repair -n "$1" > "$1.log" 2>&1 || { cat "$1.log" >&2; false; }
"#;

/// Runs the test `inner` of this program on a new volume mounted by the kernel, and then `xfs_repair -n`. Skips the
/// calling test if nothing can be mounted.
///
/// # Errors
/// The inner test failed, or a folder or program is not available.
pub fn run(inner: &str) -> anyhow::Result<()> {
    needs::met(needs::mounting()).map_or(Ok(()), |()| mounted_by(Path::new(""), inner))
}

/// Runs the test `inner` on a new volume mounted by Xebec; see [`run`].
///
/// # Errors
/// Those of [`run`].
pub fn run_on_xebec(inner: &str) -> anyhow::Result<()> {
    let ready = needs::fuse().and_then(|()| needs::mounting()).and_then(|()| built::xebec());
    needs::met(ready).map_or(Ok(()), |xebec| mounted_by(&xebec, inner))
}

fn mounted_by(program: &Path, inner: &str) -> anyhow::Result<()> {
    let work = scratch()?;
    let mount = work.path().join("mnt");
    std::fs::create_dir(&mount)?;
    let mut command = needs::script("-eu", RUN, inner);
    command.arg(work.path().join("volume"));
    command.args([&mount, &std::env::current_exe()?]).arg(inner).arg(program).env(MOUNT, &mount);
    let peaks = Peaks::of(&mut command, work.path())?;
    let status = command.status().context("unshare")?;
    ensure!(status.success(), "{inner} on a mounted volume: {status}");
    peaks.judge(inner)
}

/// Returns the mount point for the inner test; `None` if it was not started by the outer one.
pub fn mount_point() -> Option<PathBuf> {
    std::env::var_os(MOUNT).map(PathBuf::from)
}

/// Creates a temporary folder, in memory if there is enough space: loop mounts flush often, which is slow on a disk.
///
/// # Errors
/// It cannot be created.
pub fn scratch() -> std::io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    if free > 4 << 30 { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
