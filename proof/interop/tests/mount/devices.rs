//! A device that fails during a mount: errors of programs, the end of the mount, and the volume after the device has
//! recovered.

use crate::scripts::run;

/// A volume on a device that fails on request: `fails WORDS` selects failures (see `interop faulty`), `fails` ends
/// them.
const FAULTY: &str = r#"
mkdir faulty && truncate -s 200m disk
attach() {
    "$interop" faulty disk faulty & behind=$!
    for n in $(seq 500); do [ ! -e faulty/image ] || break; sleep 0.02; done
    # Disable readahead.
    echo 0 > "/sys/class/bdi/$(mountpoint -d faulty)/read_ahead_kb"
}
# Drops the kernel's cache of the device. The io_uring of an ended process may keep the image open for a moment.
detach() {
    for n in $(seq 500); do umount faulty 2> output && break; sleep 0.02; done
    wait $behind || fail "interop faulty ends with $?"
}
fails() { echo "$*" > faulty/switch; }
# Runs a command that must fail, with EIO.
eio() {
    if "$@" > output 2>&1; then fail "succeeds on a failing device: $*"; fi
    grep -q 'Input/output error' output || fail "an error other than EIO: $*"
}
gone() {
    for n in $(seq 500); do kill -0 $1 2> /dev/null || return 0; sleep 0.02; done
    fail "$2: the server is still there"
}
server() { "$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/'; }
attach
"$xebec" mkfs -q faulty/image
"#;

/// Failed writes are reported once per open file, and the data is kept and written later. Files and directories that
/// could not be read are readable again after the device has recovered. Other files are not affected.
#[test]
fn failed_writes_are_reported_and_kept() {
    let script = r#"
"$xebec" mount faulty/image mnt
head -c 1M /dev/urandom > mnt/file
# Past the blocks that a mount reads, in any AG.
head -c 8M /dev/zero | tr '\0' x > mnt/before && sync mnt/before
mkdir mnt/dir && (cd mnt/dir && for n in $(seq 2000); do : > file-with-a-name-$n; done)
"$xebec" umount mnt
"$xebec" filefrag --json faulty/image /file > place
cat > errors.py << 'END'
import errno, json, os
place = json.load(open("place"))
start = place["files"][0]["extents"][0]["device_block"] * place["block_bytes"]
def fails(words):
    with open("faulty/switch", "w") as switch:
        switch.write(words + "\n")
def sync(fd):
    try:
        os.fsync(fd)
        return 0
    except OSError as error:
        return error.errno
a, b = os.open("mnt/file", os.O_RDWR), os.open("mnt/file", os.O_RDWR)
assert os.pwrite(a, b"N" * 100000, 5000) == 100000
fails(f"write {start}-{start + 1048576}")
assert sync(a) == errno.EIO, "a failed write is not reported"
c = os.open("mnt/other", os.O_RDWR | os.O_CREAT)
os.write(c, b"another file")
assert sync(c) == 0, "the failure of another file is reported"
fails("")
assert sync(b) == errno.EIO, "the failure is not reported to the other open file"
assert sync(b) == 0, "the failure is reported twice"
assert sync(a) == 0, "the failure is reported to the first open file again"
d = os.open("mnt/file", os.O_RDWR)
assert sync(d) == 0, "the failure is reported to a file opened later"
assert os.pread(d, 100000, 5000) == b"N" * 100000, "the data is not kept"
END
"$xebec" mount faulty/image mnt
python3 errors.py > output 2>&1 || fail "errors of fsync"
if "$xebec" status mnt | grep -q 'shut down'; then fail "the volume was shut down"; fi
sum=$(sha256sum < mnt/file)
"$xebec" umount mnt
detach
attach

"$xebec" mount faulty/image mnt
fails read
eio cat mnt/file
eio ls mnt/dir
fails
[ "$(sha256sum < mnt/file)" = "$sum" ] || fail "wrong contents after the device recovered"
[ "$(ls mnt/dir | wc -l)" = 2000 ] || fail "wrong names after the device recovered"
"$xebec" umount mnt
detach
judge disk "after failed writes and reads"
"#;
    run("failed_writes_are_reported_and_kept", &["python3"], &[FAULTY, script].concat());
}

/// If the log cannot be written or flushed, the volume on `$image` shuts down: all operations fail with `EIO`, the
/// mount reports the cause and can be unmounted, and the next mount has all synced files.
const ENDS: &str = r#"
for kind in write sync 'write sync' 'read write sync'; do
    "$xebec" mount "$image" mnt
    echo "$kind" > mnt/kept && sync mnt/kept mnt
    echo more >> mnt/kept
    pid=$(server)
    exec 5> mnt/open && echo open >&5
    fails $kind
    eio sync mnt/kept
    eio sync mnt
    eio touch mnt/late
    eio mkdir mnt/dir
    "$xebec" status mnt > status || fail "$kind: no status"
    grep -q '^shut down' status || fail "$kind: not shut down: $(cat status)"
    if "$xebec" umount mnt 2> output; then fail "unmounted while a file is open"; fi
    exec 5>&- || true
    "$xebec" umount mnt || fail "$kind: it cannot be unmounted"
    gone $pid "$kind"
    if "$xebec" mount "$image" mnt 2> output; then fail "$kind: mounted while the device fails"; fi
    [ -s output ] || fail "no message why it cannot be mounted"
    fails
    "$xebec" mount "$image" mnt || fail "$kind: it cannot be mounted after the device recovered"
    [ "$(head -n 1 mnt/kept)" = "$kind" ] || fail "$kind: a synced file is missing"
    [ ! -e mnt/late ] && [ ! -e mnt/dir ] || fail "what failed was done"
    "$xebec" umount mnt
    judge disk "$kind"
done
"#;

#[test]
fn log_write_errors_shut_the_volume_down() {
    let script = r#"
# A device that disappears.
"$xebec" mount faulty/image mnt
echo last > mnt/kept && sync mnt/kept mnt
pid=$(server)
kill -9 $behind
echo more >> mnt/kept
eio sync mnt/kept
eio sync mnt
eio touch mnt/late
"$xebec" status mnt | grep -q '^shut down' || fail "not shut down"
"$xebec" umount mnt || fail "it cannot be unmounted"
gone $pid "without a device"
umount -l faulty && wait $behind || true
attach
"$xebec" mount faulty/image mnt
grep -q last mnt/kept || fail "a synced file is missing with the device"
"$xebec" umount mnt
detach
judge disk "after the device was gone"
"#;
    let script = [FAULTY, "image=faulty/image", ENDS, script].concat();
    run("log_write_errors_shut_the_volume_down", &[], &script);
}

/// A block device reports a failure once, and then has the data neither in memory nor on the medium. (A loop device on
/// a full file system is not suitable: Linux 6.18 treats partial writes of the file system as complete.)
#[test]
fn block_device_errors_shut_the_volume_down() {
    let script = r#"
losetup -d "$image"
detach
"#;
    let begin = r#"
image=$(losetup --find --show faulty/image)
trap 'losetup -d "$image" 2> /dev/null || true' EXIT
"#;
    let script = [FAULTY, begin, ENDS, script].concat();
    run("block_device_errors_shut_the_volume_down", &["losetup"], &script);
}
