//! What `xebec create` makes of trees of which there is much of one thing, of an OCI image and of a whole system: both
//! versions of `xfs_repair -n` have no complaint and the kernel shows the source, after each step of a volume's life.
//!
//! | part | source |
//! |---|---|
//! | `trees` | files, links, names, attributes, bytes, each in great number |
//! | `archives` | attributes that no kernel lists, and images of layers |
//! | `shared` | files that share blocks |
//! | `system` | Debian, which then runs |
//!
//! The trees are small here and of full size with `XEBEC_SCALE=full` in the environment, which takes half an hour and
//! some gigabytes; the system is made only then, as it comes over the network.
#![expect(clippy::unwrap_used, reason = "a test says what it expects by panicking, in its helpers too")]

mod archives;
mod shared;
mod system;
mod trees;

use interop::{built, mounted};

/// What all scripts begin with: `$1` the folder, `$2` the program, `$3` the binary `interop`, `$4` where the newer
/// xfsprogs are. What is judged is the image `made`.
const JUDGE: &str = r#"
export TEST_DIR=x TEST_DEV=x QA_CHECK_FS=x
cd "$1"; xebec=$2 interop=$3 newer=$4; shift 4
mkdir mnt
trap '! mountpoint -q mnt || umount mnt' EXIT
fail() { echo "after $*" >&2; tail -n 20 said >&2; exit 1; }
run() { "$xebec" "$@" > said 2>&1 || fail "$*"; }
source_volume() { truncate -s 64G volume; "$newer/mkfs.xfs" -q volume; mount -t xfs -o loop,noatime volume mnt; }
# What the kernel shows of what is mounted, in $1.manifest and $1.runs, without what a source does not have.
without=
show() {
    "$interop" manifest mnt | sed "$without" > $1.manifest
    (cd mnt; find . -type f -size +4G -print0 | LC_ALL=C sort -z | xargs -0 -r -n 1 "$interop" runs) > $1.runs
}
sound() {
    "$xebec" check made > said 2>&1 || fail "$1: xebec check"
    for repair in xfs_repair "$newer/xfs_repair"; do
        "$repair" -n -f -o force_geometry made > said 2>&1 || fail "$1: $repair"
    done
}
judge() {
    sound "$1"
    mount -t xfs -o loop,ro,noatime,nouuid made mnt
    show made
    umount mnt
    "$interop" compare source.manifest made.manifest > said 2>&1 || fail "$1: the kernel shows other files"
    diff source.runs made.runs > said || fail "$1: the kernel shows other data"
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

/// Whether trees are as large as they are meant to be.
fn is_full() -> bool {
    std::env::var_os("XEBEC_SCALE").is_some_and(|scale| scale == "full")
}

/// Runs a script behind the one that all begin with, in a folder of its own; the test is skipped where it cannot run.
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} {words:?}: {said}");
}
