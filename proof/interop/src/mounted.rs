//! Tests on a volume that is mounted, by the kernel or by Xebec, in two halves: the outer one makes the volume and
//! mounts it, in a mount namespace of its own, and runs the inner one there, an ignored test of the same program.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::built;

/// Where the inner half finds the volume.
const MOUNT: &str = "XEBEC_MOUNTED";

/// Makes a volume `$1`, mounts it on `$2`, and runs the test `$4` of the program `$3`; by `$5` if that is not empty.
const RUN: &str = r#"
truncate -s 512M "$1"
mkfs.xfs -q "$1"
if [ -z "$5" ]; then mount -t xfs -o loop,nouuid "$1" "$2"; else "$5" mount "$1" "$2"; fi
failed=0
"$3" --exact --ignored --nocapture "$4" || failed=$?
if [ -z "$5" ]; then umount "$2"; else "$5" umount "$2"; fi
[ $failed = 0 ]
xfs_repair -n "$1" > "$1.said" 2>&1 || { cat "$1.said" >&2; false; }
"#;

/// Runs the test `inner` of this program on a new volume that the kernel has mounted, and has `xfs_repair` look at it;
/// says that `test` was skipped where nothing can be mounted.
///
/// # Errors
/// The inner half failed, and has said why; what making folders and starting programs meets.
pub fn run(inner: &str) -> anyhow::Result<()> {
    needs::met(needs::mounting()).map_or(Ok(()), |()| mounted_by(Path::new(""), inner))
}

/// The same on one that Xebec has mounted.
///
/// # Errors
/// As [`run`].
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
    let status = command.status().context("unshare")?;
    ensure!(status.success(), "{inner} on a mounted volume: {status}");
    Ok(())
}

/// For the inner half: where the volume is mounted; `None` where nobody has mounted any.
pub fn place() -> Option<PathBuf> {
    std::env::var_os(MOUNT).map(PathBuf::from)
}

/// A folder that vanishes, in memory where there is room: a loop mount flushes its file often, which a disk is slow at.
///
/// # Errors
/// It cannot be made.
pub fn scratch() -> std::io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |about| about.f_bavail * about.f_frsize);
    if room > 4 << 30 { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
