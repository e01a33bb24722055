//! Logs formatted by `xfs_repair`, and logs that are zero in part: Xebec must treat a log as clean, and refuse one, as
//! Linux does.

use interop::built;

/// `$1` is the folder, `$2` the program.
const SCRIPT: &str = r#"
cd "$1"
xebec=$2
newer=$XEBEC_JUDGES/bin
fail() { echo "$*" >&2; cat output >&2 2> /dev/null || true; exit 1; }
truncate -s 64m whole
TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 "$newer/mkfs.xfs" -q -l size=16m,su=32k -d agcount=2 whole
# A superblock newer than the log, as after `xfs_repair -L`: the log gets cycle 8.
"$newer/xfs_db" -x -c 'sb 0' -c 'write -d lsn 0x500000010' whole > output
"$newer/xfs_repair" whole > output 2>&1 || fail xfs_repair
grep -q 'ormat log to cycle 8' output || fail "xfs_repair formatted no log"
start=$("$newer/xfs_db" -c 'sb 0' -c 'p logstart' whole | sed 's/.* //')
start=$("$newer/xfs_db" -c "convert fsblock $start bb" whole | sed 's/.*(\([0-9]*\)).*/\1/')
blocks=$((16 << 11))
mkdir mnt
# zeroed FROM TO: zeroes these blocks of the log in a copy.
zeroed() {
    cp --sparse=always whole image
    dd if=/dev/zero of=image bs=512 seek=$((start + $1)) count=$(($2 - $1)) conv=notrunc status=none
    cp --sparse=always image copy
}
for from in $blocks 512 513 1000 3000 4000; do
    zeroed $from $blocks
    mount -t xfs -o loop,nouuid copy mnt || fail "zeros from $from on: Linux does not mount it"
    umount mnt
    "$xebec" info --json image 2> /dev/null | grep -q '"state": "clean"' || fail "zeros from $from on: not clean"
    "$xebec" touch image /new > output 2>&1 || fail "zeros from $from on: cannot be written to"
    "$xebec" check image > output 2>&1 || fail "zeros from $from on: damaged"
    mount -t xfs -o loop,nouuid image mnt && [ -e mnt/new ] || fail "zeros from $from on: Linux misses a file"
    umount mnt
done
for to in 1 64 1000 $blocks; do
    zeroed 0 $to
    if mount -t xfs -o loop,nouuid copy mnt 2> /dev/null; then fail "zeros up to $to: Linux mounts it"; fi
    if "$xebec" touch image /new 2> output; then fail "zeros up to $to: Xebec writes to it"; fi
    grep -q 'the log was zeroed' output || fail "zeros up to $to: the log is not mentioned"
    "$xebec" ls --no-replay image 2> output || fail "zeros up to $to: it cannot be read without replay"
    if "$xebec" check --json image > output; then fail "zeros up to $to: clean"; fi
    grep -q '"structure":"log"' output || fail "zeros up to $to: no finding"
done
# Linux accepts an empty log on a volume that was never mounted.
cp --sparse=always whole fresh
"$newer/xfs_db" -x -c 'sb 0' -c 'write -d lsn 0' fresh > output
for to in 1 64 1000 $blocks; do
    cp --sparse=always fresh image
    dd if=/dev/zero of=image bs=512 seek=$start count=$to conv=notrunc status=none
    cp --sparse=always image copy
    mount -t xfs -o loop,nouuid copy mnt || fail "zeros up to $to: Linux does not mount the volume"
    umount mnt
    "$xebec" touch image /new > output 2>&1 || fail "zeros up to $to: the volume cannot be written to"
    mount -t xfs -o loop,nouuid image mnt && [ -e mnt/new ] || fail "zeros up to $to: Linux misses the file"
    umount mnt
done
"#;

#[test]
fn partly_zeroed_logs_are_treated_as_by_linux() {
    let Some(xebec) = needs::met(needs::mounting().and_then(|()| built::xebec())) else { return };
    let folder = interop::mounted::scratch().unwrap();
    let mut command = needs::script("-euo pipefail", SCRIPT, "formatted");
    let output = command.arg(folder.path()).arg(xebec).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{text}");
}
