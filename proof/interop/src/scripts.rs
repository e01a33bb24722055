//! Scripts in which Linux judges volumes that are not files: images of Ceph, objects in a store.

use std::process::Command;

use anyhow::{Error, ensure};

use crate::{built, mounted};

/// What all scripts begin with: `$1` is the folder, `$2` the program.
const FUNCTIONS: &str = r#"
cd "$1"
xebec=$2 newer=$XEBEC_JUDGES/bin
repairs="xfs_repair $newer/xfs_repair"
mkdir -p mnt kernel other
fail() { echo "$*" >&2; cat output >&2; exit 1; }
run() { "$xebec" "$@" > output 2>&1 || fail "xebec $*"; }
refused() {
    expected=$1
    shift
    if "$xebec" "$@" > output 2>&1; then fail "xebec $* succeeded"; fi
    grep -q -- "$expected" output || fail "xebec $*: the error does not contain: $expected"
}
# Both versions of xfs_repair must find nothing in the image $1.
repaired() {
    for repair in $repairs; do
        $repair -n -f "$1" > output 2>&1 || fail "$repair: $1"
    done
}
# Linux must mount the image $1, replay its log, and find a healthy volume. It is left mounted on kernel, read-only.
mount_by_linux() {
    mount -t xfs -o loop,nouuid "$1" kernel || fail "the kernel does not mount $1"
    umount kernel
    repaired "$1"
    mount -t xfs -o loop,nouuid,ro "$1" kernel
}
# Mounts the volume $1 in the background. The server is killed at the end of the script in any case.
serve() {
    "$xebec" mount --foreground "$1" mnt > server 2>&1 &
    server=$!
    trap '{ kill -9 $server; umount -l mnt; umount -l kernel; umount -l other; } 2> /dev/null || true' EXIT
    until mountpoint -q mnt; do
        kill -0 $server 2> /dev/null || { cat server >&2; exit 1; }
        sleep 0.1
    done
}
"#;

/// What a script needs, besides `tools`.
///
/// # Errors
/// The first thing that is missing.
pub fn ready(tools: &[&str]) -> Result<(), String> {
    needs::mounting()?;
    needs::fuse()?;
    needs::newer_xfsprogs()?;
    needs::tools(&["xfs_repair", "mountpoint"])?;
    needs::tools(tools)
}

/// Runs steps in a folder of their own. They may call the functions above.
///
/// # Errors
/// A step failed.
pub fn run(name: &str, steps: &str, configure: impl FnOnce(&mut Command)) -> anyhow::Result<()> {
    let folder = mounted::scratch()?;
    let mut script = needs::script("-eu", &format!("{FUNCTIONS}{steps}"), name);
    script.arg(folder.path()).arg(built::xebec().map_err(Error::msg)?);
    configure(&mut script);
    ensure!(script.status()?.success(), "{name}: a step failed");
    Ok(())
}
