//! What happens while `xebec create` makes an image on a file system that is too small, or that has no files without
//! names: nothing lies under the final name, nothing beside it, and the message says what to do.
#![expect(clippy::unwrap_used, reason = "a test says what it expects by panicking, in its helpers too")]

use interop::{built, mounted};

/// `$1` a folder, `$2` the program.
const BEGIN: &str = r#"
cd "$1"; xebec=$2
mkdir mnt tree tree/sub
trap '! mountpoint -q mnt || umount mnt' EXIT
fail() { echo "$*" >&2; cat said >&2; exit 1; }
for n in $(seq 40); do head -c 1500000 /dev/urandom > tree/sub/$n; ln -s $n tree/link$n; done
# Listing a directory, and reading a link, may leave a trace in times of access.
describe() { find tree -type f -printf '%p %s %T@ %A@ %C@\n' -o -printf '%p %T@ %C@\n' | sort; }
untouched() { describe | diff before - > said || fail "the source was changed"; }
tar -C tree -cf tree.tar .
describe > before
# What the last command left, when it failed as it should.
failed() {
    grep -q "$1" said || fail "expected: $1"
    [ -z "$(ls -A mnt | grep -v lost+found)" ] || fail "left behind: $(ls -A mnt)"
}
"#;

/// On `$3`, a file system of 30 MB.
const FULL: &str = r#"
case $3 in
tmpfs) mount -t tmpfs -o size=30m none mnt ;;
ext4) truncate -s 30M small; mkfs.ext4 -q small; mount -o loop small mnt ;;
esac
full="No space left on device.*where the image is made"
! "$xebec" create mnt/made --from tree > said 2>&1 || fail "more than fits"
failed "$full"
! "$xebec" create mnt/made --from tree.tar > said 2>&1 || fail "more than fits"
failed "$full"
! "$xebec" create mnt/made --from - --size 1g < tree.tar > said 2>&1 || fail "more than fits"
failed "$full"
! "$xebec" create mnt/made --from - < tree.tar > said 2>&1 || fail "more than fits"
failed "not needed with --size"
# The volume is too small, not the file system that the image is on.
! "$xebec" create mnt/made --from tree --size 24m > said 2>&1 || fail "more than fits"
failed "give it more room with --size or --free"
# What was there stays.
echo old > mnt/made
! "$xebec" create mnt/made --force --from tree > said 2>&1 || fail "more than fits"
[ "$(cat mnt/made)" = old ] && [ "$(ls -A mnt | grep -v lost+found)" = made ] || fail "the old file"
untouched
# With room it is made.
rm -r mnt/made tree/sub/{1,2,3}?
"$xebec" create mnt/made --from tree > said 2>&1 || fail "what fits"
"$xebec" check mnt/made > said 2>&1 || fail "what was made"
"#;

/// Where `/proc` does not tell of descriptors, a file cannot get its name later.
const HIDDEN: &str = r#"
mkfifo pipe
mount -t tmpfs none /proc
for signal in TERM INT; do
    "$xebec" create mnt/made --from - --size 100m < pipe > said 2>&1 &
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
"$xebec" create mnt/made --from - --size 100m < tree.tar > said 2>&1 || fail "what is not interrupted"
[ "$(ls -A mnt)" = made ] || fail "left behind: $(ls -A mnt)"
"$xebec" create mnt/made --force --from - --size 101m < tree.tar > said 2>&1 || fail "what is replaced"
[ "$(ls -A mnt)" = made ] || fail "left behind: $(ls -A mnt)"
"$xebec" check mnt/made > said 2>&1 || fail "what was made"
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
fn a_full_file_system_is_said() {
    run("a_full_file_system_is_said", FULL, "tmpfs");
    run("a_full_file_system_is_said", FULL, "ext4");
}

#[test]
fn a_hidden_file_goes_when_it_is_interrupted() {
    run("a_hidden_file_goes_when_it_is_interrupted", HIDDEN, "");
}
