//! Runs test scripts in a temporary folder, with common shell functions.

use std::fs::File;

use interop::built;
use interop::memory::Peaks;

/// Start of each script: `$1` is the folder, `$2` the program `xebec`, `$3` the program `interop`.
const HEAD: &str = r#"
cd "$1"
xebec=$2
interop=$3
fail() { echo "$*" >&2; cat output >&2 2> /dev/null || true; exit 1; }
# Judges the image $1 by all checkers.
judge() {
    "$xebec" check "$1" > output 2>&1 || fail "$2: xebec check"
    xfs_repair -n "$1" > output 2>&1 || fail "$2: xfs_repair -n"
    "$XEBEC_JUDGES/bin/xfs_repair" -n "$1" > output 2>&1 || fail "$2: the newer xfs_repair -n"
}
# Prints the tree $1: types, permissions, owners, sizes (not of directories), links, times, contents.
list_tree() {
    (cd "$1" && find . -type d -printf '%P d %m %U %G %T@\n' -o -printf '%P %y %m %U %G %s %n %l %T@\n' | LC_ALL=C sort
     find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}
# Compares the tree of the image $1 on a kernel mount with the file $2.
compare_with_kernel() {
    mkdir -p judged
    mount -t xfs -o loop,nouuid,ro,noatime "$1" judged
    list_tree judged > shown
    umount judged
    diff "$2" shown > output || fail "the kernel shows a different tree"
}
# Changes to a path that all users can access.
everybody() {
    chmod 755 . && mount --bind . /mnt && cd /mnt
}
mkdir -p mnt
"#;

/// Runs a script in a temporary folder and a new mount namespace. Skips the test if a tool is missing. If
/// `XEBEC_MEMORY` is set, the memory of all programs is limited.
///
/// # Panics
/// With the output of the script, if it fails.
pub fn run(test: &str, tools: &[&str], script: &str) {
    let ready = needs::fuse()
        .and_then(|()| needs::mounting())
        .and_then(|()| needs::tools(tools))
        .and_then(|()| built::xebec());
    let Some(xebec) = needs::met(ready) else { return };
    let folder = interop::mounted::scratch().unwrap();
    let script = [HEAD, script].concat();
    let mut command = needs::script("-euo pipefail", &script, test);
    command.arg(folder.path()).arg(xebec).arg(env!("CARGO_BIN_EXE_interop"));
    let peaks = Peaks::of(&mut command, folder.path()).unwrap();
    // A pipe would stay open if a failed script leaves a server running.
    let path = folder.path().join("script.log");
    let log = File::create(&path).unwrap();
    let status = command.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap();
    assert!(status.success(), "{test}: {}", String::from_utf8_lossy(&std::fs::read(path).unwrap()));
    peaks.judge(test).unwrap();
}
