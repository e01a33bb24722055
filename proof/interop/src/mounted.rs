//! Tests on a volume that the kernel has mounted, in two halves: the outer one makes the volume and mounts it, in a
//! mount namespace of its own, and runs the inner one there, an ignored test of the same program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::needs;

/// Where the inner half finds the volume.
const MOUNT: &str = "XEBEC_MOUNTED";

/// Makes a volume `$1`, mounts it on `$2`, and runs the test `$4` of the program `$3`.
const RUN: &str = r#"
truncate -s 512M "$1"
mkfs.xfs -q "$1"
mount -t xfs -o loop,nouuid "$1" "$2"
"$3" --exact --ignored --nocapture "$4"
umount "$2"
"#;

/// Runs the test `inner` of this program on a new volume; says that `test` was skipped where nothing can be mounted.
///
/// # Errors
/// The inner half failed, and has said why; what making folders and starting programs meets.
pub fn run(test: &str, inner: &str) -> anyhow::Result<()> {
    if let Err(why) = needs::mounting() {
        needs::skip(test, &why);
        return Ok(());
    }
    let work = scratch()?;
    let mount = work.path().join("mnt");
    std::fs::create_dir(&mount)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-euc", RUN, inner]).arg(work.path().join("volume"));
    command.args([&mount, &std::env::current_exe()?]).arg(inner).env(MOUNT, &mount);
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
