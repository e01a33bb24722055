//! `xebec create` from trees with extreme numbers of one thing, from an OCI image and from a whole system: after each
//! step both versions of `xfs_repair -n` must find nothing, and the kernel must show the source tree.
//!
//! | part | source |
//! |---|---|
//! | `trees` | many files, links, names or attributes, and a large sparse file |
//! | `archives` | more attributes than the kernel lists, and OCI layers |
//! | `shared` | files that share blocks |
//! | `system` | Debian, whose programs then run |
//!
//! The trees are small by default. With `XEBEC_SCALE=full` they have full size, which takes half an hour and some
//! gigabytes; the system is downloaded, so this test runs only on request.
#![expect(clippy::unwrap_used, reason = "a failed test panics, also in helper functions")]

mod archives;
mod shared;
mod system;
mod trees;

use interop::{built, mounted};

/// Start of all scripts: `$1` is the folder, `$2` the program, `$3` the binary `interop`, `$4` the folder of the newer
/// xfsprogs. The image `made` is judged.
const JUDGE: &str = r#"
export TEST_DIR=x TEST_DEV=x QA_CHECK_FS=x
cd "$1"; xebec=$2 interop=$3 newer=$4; shift 4
mkdir mnt
trap '! mountpoint -q mnt || umount mnt' EXIT
fail() { echo "after $*" >&2; tail -n 20 output >&2; exit 1; }
run() { "$xebec" "$@" > output 2>&1 || fail "$*"; }
source_volume() { truncate -s 64G volume; "$newer/mkfs.xfs" -q volume; mount -t xfs -o loop,noatime volume mnt; }
# Writes the manifest of the kernel mount, filtered by $without, to $1.manifest, and data ranges to $1.runs.
without=
show() {
    "$interop" manifest mnt | sed "$without" > $1.manifest
    (cd mnt; find . -type f -size +4G -print0 | LC_ALL=C sort -z | xargs -0 -r -n 1 "$interop" runs) > $1.runs
}
sound() {
    "$xebec" check made > output 2>&1 || fail "$1: xebec check"
    for repair in xfs_repair "$newer/xfs_repair"; do
        "$repair" -n -f -o force_geometry made > output 2>&1 || fail "$1: $repair"
    done
}
judge() {
    sound "$1"
    mount -t xfs -o loop,ro,noatime,nouuid made mnt
    show made
    umount mnt
    "$interop" compare source.manifest made.manifest > output 2>&1 || fail "$1: the kernel shows other files"
    diff source.runs made.runs > output || fail "$1: the kernel shows other data"
}
life() {
    local size=$(stat -c %s made)
    run grow made $((size + size / 3 + (100 << 20)))
    judge growing
    run shrink made $((size + (60 << 20)))
    judge shrinking
    run minimize made
    run trim made
    judge "minimizing and trimming"
}
"#;

/// Returns true if trees have full size.
fn is_full() -> bool {
    std::env::var_os("XEBEC_SCALE").is_some_and(|scale| scale == "full")
}

/// Runs a script after the common start, in a temporary folder. Skips the test if a tool is missing.
fn judge(test: &str, tools: &[&str], script: &str, words: &[&str]) {
    let Some(xebec) =
        needs::met(needs::mounting().and_then(|()| needs::tools(tools)).and_then(|()| built::xebec()))
    else {
        return;
    };
    let folder = mounted::scratch().unwrap();
    let mut command = needs::script("-euo pipefail", &format!("{JUDGE}{script}"), test);
    command.arg(folder.path()).arg(xebec).arg(env!("CARGO_BIN_EXE_interop"));
    let output = command.arg(needs::judges()).args(words).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} {words:?}: {stderr}");
}
