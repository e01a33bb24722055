//! `xebec create` on a file system that is too small, or that cannot give a name to an `O_TMPFILE`: no file may remain
//! under the final name or next to it, and the message must say what to do.
#![expect(clippy::unwrap_used, reason = "a failed test panics, also in helper functions")]

use interop::{built, mounted};

/// Common start of the scripts: `$1` is a folder, `$2` the program.
const BEGIN: &str = r#"
cd "$1"; xebec=$2
mkdir mnt tree tree/sub
trap '! mountpoint -q mnt || umount mnt' EXIT
fail() { echo "$*" >&2; cat output >&2; exit 1; }
for n in $(seq 40); do head -c 1500000 /dev/urandom > tree/sub/$n; ln -s $n tree/link$n; done
# Listing directories and reading links may change their access times.
describe() { find tree -type f -printf '%p %s %T@ %A@ %C@\n' -o -printf '%p %T@ %C@\n' | sort; }
untouched() { describe | diff before - > output || fail "the source was changed"; }
tar -C tree -cf tree.tar .
describe > before
# Checks the message of the last command, which must have failed, and that it left no file.
failed() {
    grep -q "$1" output || fail "expected: $1"
    [ -z "$(ls -A mnt | grep -v lost+found)" ] || fail "left behind: $(ls -A mnt)"
}
"#;

/// A file system of the type `$3` with 30 MB.
const FULL: &str = r#"
case $3 in
tmpfs) mount -t tmpfs -o size=30m none mnt ;;
ext4) truncate -s 30M small; mkfs.ext4 -q small; mount -o loop small mnt ;;
esac
full="No space left on device.*the file system of the image is full"
! "$xebec" create mnt/made --from tree > output 2>&1 || fail "more than fits"
failed "$full"
! "$xebec" create mnt/made --from tree.tar > output 2>&1 || fail "more than fits"
failed "$full"
! "$xebec" create mnt/made --from - --size 1g < tree.tar > output 2>&1 || fail "more than fits"
failed "$full"
! "$xebec" create mnt/made --from - < tree.tar > output 2>&1 || fail "more than fits"
failed "not needed with --size"
# The volume is too small, not the file system of the image.
! "$xebec" create mnt/made --from tree --size 24m > output 2>&1 || fail "more than fits"
failed "make it larger with --size or --free"
# An existing file remains.
echo old > mnt/made
! "$xebec" create mnt/made --force --from tree > output 2>&1 || fail "more than fits"
[ "$(cat mnt/made)" = old ] && [ "$(ls -A mnt | grep -v lost+found)" = made ] || fail "the old file"
untouched
# With enough space it is created.
rm -r mnt/made tree/sub/{1,2,3}?
"$xebec" create mnt/made --from tree > output 2>&1 || fail "what fits"
"$xebec" check mnt/made > output 2>&1 || fail "what was made"
"#;

/// Without `/proc` an `O_TMPFILE` cannot get a name, so a hidden temporary file is used.
const HIDDEN: &str = r#"
mkfifo pipe
mount -t tmpfs none /proc
for signal in TERM INT; do
    "$xebec" create mnt/made --from - --size 100m < pipe > output 2>&1 &
    making=$!
    exec 3> pipe
    head -c 3000000 tree.tar >&3
    until [ -n "$(ls -A mnt)" ]; do sleep 0.01; done
    kill -$signal $making
    code=0; wait $making || code=$?
    exec 3>&-
    [ $code = $((128 + $(kill -l $signal))) ] || fail "$signal: $code"
    failed "interrupted, not created"
done
"$xebec" create mnt/made --from - --size 100m < tree.tar > output 2>&1 || fail "what is not interrupted"
[ "$(ls -A mnt)" = made ] || fail "left behind: $(ls -A mnt)"
"$xebec" create mnt/made --force --from - --size 101m < tree.tar > output 2>&1 || fail "what is replaced"
[ "$(ls -A mnt)" = made ] || fail "left behind: $(ls -A mnt)"
"$xebec" check mnt/made > output 2>&1 || fail "what was made"
"#;

fn run(test: &str, script: &str, word: &str) {
    let ready = needs::mounting().and_then(|()| needs::tools(&["mkfs.ext4", "tar"]));
    let Some(xebec) = needs::met(ready.and_then(|()| built::xebec())) else { return };
    let folder = mounted::scratch().unwrap();
    let mut command = needs::script("-euo pipefail", &format!("{BEGIN}{script}"), test);
    let output = command.arg(folder.path()).arg(&xebec).arg(word).output().unwrap();
    assert!(output.status.success(), "{test} {word}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn full_file_system_is_reported() {
    run("full_file_system_is_reported", FULL, "tmpfs");
    run("full_file_system_is_reported", FULL, "ext4");
}

#[test]
fn temporary_file_is_removed_on_interrupt() {
    run("temporary_file_is_removed_on_interrupt", HIDDEN, "");
}
