//! A folder with a volume in it, and the judges.

use std::fs::File;

use interop::built;

/// What each script begins with: `$1` the folder, `$2` the program, `$3` the judges' own.
const HEAD: &str = r#"
cd "$1"
xebec=$2
interop=$3
fail() { echo "$*" >&2; cat said >&2 2> /dev/null || true; exit 1; }
# Of the image $1: no judge complains.
judge() {
    "$xebec" check "$1" > said 2>&1 || fail "$2: xebec check"
    xfs_repair -n "$1" > said 2>&1 || fail "$2: xfs_repair -n"
    "$XEBEC_JUDGES/bin/xfs_repair" -n "$1" > said 2>&1 || fail "$2: the newer xfs_repair -n"
}
# What the folder $1 holds: kinds, permissions, owners, sizes (not of directories), links, times, contents.
facts() {
    (cd "$1" && find . -type d -printf '%P d %m %U %G %T@\n' -o -printf '%P %y %m %U %G %s %n %l %T@\n' | LC_ALL=C sort
     find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}
# The kernel shows of the image $1 what the file $2 has.
shown() {
    mkdir -p judged
    mount -t xfs -o loop,nouuid,ro,noatime "$1" judged
    facts judged > shown
    umount judged
    diff "$2" shown > said || fail "the kernel shows something else"
}
# Goes on where every user may go, whoever owns the folders above.
everybody() {
    chmod 755 . && mount --bind . /mnt && cd /mnt
}
mkdir -p mnt
"#;

/// Runs a script in a folder and a mount namespace of its own, with the programs that it needs.
///
/// # Panics
/// With what the script said, where it fails.
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
    // Not a pipe: a server that is left behind where a script fails would keep that open.
    let path = folder.path().join("script.log");
    let log = File::create(&path).unwrap();
    let status = command.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap();
    assert!(status.success(), "{test}: {}", String::from_utf8_lossy(&std::fs::read(path).unwrap()));
}
