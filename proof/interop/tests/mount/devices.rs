//! A device that fails under the mount: what programs are told, how the mount ends, and what is there when the device
//! is well again.

use crate::bed::run;

/// A volume on a device that fails by request: `fails WORDS` (`interop faulty`), and nothing fails after `fails` alone.
const FAULTY: &str = r#"
mkdir faulty && truncate -s 200m disk
attach() {
    "$interop" faulty disk faulty & behind=$!
    for n in $(seq 500); do [ ! -e faulty/image ] || break; sleep 0.02; done
    # Nothing is read before it is asked for.
    echo 0 > "/sys/class/bdi/$(mountpoint -d faulty)/read_ahead_kb"
}
# What the kernel had read through it is forgotten. A ring of a process that has ended may hold the image for a moment.
detach() {
    for n in $(seq 500); do umount faulty 2> said && break; sleep 0.02; done
    wait $behind || fail "the device that fails by request ends with $?"
}
fails() { echo "$*" > faulty/switch; }
# Runs a command that must fail, with EIO.
eio() {
    if "$@" > said 2>&1; then fail "succeeds on a failing device: $*"; fi
    grep -q 'Input/output error' said || fail "another error than EIO: $*"
}
gone() {
    for n in $(seq 500); do kill -0 $1 2> /dev/null || return 0; sleep 0.02; done
    fail "$2: the server is still there"
}
server() { "$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/'; }
attach
"$xebec" mkfs -q faulty/image
"#;

/// Contents that cannot be written are told once to each open file, kept, and written when that works again; contents
/// and directories that cannot be read are there again when they can. Nothing else is disturbed.
#[test]
fn what_cannot_be_written_or_read_is_told_and_kept() {
    let script = r#"
"$xebec" mount faulty/image mnt
head -c 1M /dev/urandom > mnt/file
# Behind what is read when a mount begins, whichever group it goes to.
head -c 8M /dev/zero | tr '\0' x > mnt/before && sync mnt/before
mkdir mnt/dir && (cd mnt/dir && for n in $(seq 2000); do : > file-with-a-name-$n; done)
"$xebec" umount mnt
"$xebec" filefrag --json faulty/image /file > place
cat > told.py << 'END'
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
assert sync(a) == errno.EIO, "a failed write is not told"
c = os.open("mnt/other", os.O_RDWR | os.O_CREAT)
os.write(c, b"another file")
assert sync(c) == 0, "another file's failure is told"
fails("")
assert sync(b) == errno.EIO, "the other open file is not told"
assert sync(b) == 0, "it is told twice"
assert sync(a) == 0, "the first open file is told again"
d = os.open("mnt/file", os.O_RDWR)
assert sync(d) == 0, "a file that was opened later is told"
assert os.pread(d, 100000, 5000) == b"N" * 100000, "what was written is not kept"
END
"$xebec" mount faulty/image mnt
python3 told.py > said 2>&1 || fail "what is told"
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
[ "$(sha256sum < mnt/file)" = "$sum" ] || fail "other contents when they can be read again"
[ "$(ls mnt/dir | wc -l)" = 2000 ] || fail "other names when they can be read again"
"$xebec" umount mnt
detach
judge disk "after failed writes and reads"
"#;
    run("what_cannot_be_written_or_read_is_told_and_kept", &["python3"], &[FAULTY, script].concat());
}

/// Where the log cannot be written, or not be made stable, the volume on `$image` is shut down: everything fails with
/// `EIO`, the mount says why and can be unmounted, and the next has all that was synced.
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
    "$xebec" status mnt > told || fail "$kind: no status"
    grep -q '^shut down' told || fail "$kind: not shut down: $(cat told)"
    if "$xebec" umount mnt 2> said; then fail "unmounted while a file is open"; fi
    exec 5>&- || true
    "$xebec" umount mnt || fail "$kind: it cannot be unmounted"
    gone $pid "$kind"
    if "$xebec" mount "$image" mnt 2> said; then fail "$kind: mounted while the device fails"; fi
    [ -s said ] || fail "no word on why it cannot be mounted"
    fails
    "$xebec" mount "$image" mnt || fail "$kind: it cannot be mounted when the device is well again"
    [ "$(head -n 1 mnt/kept)" = "$kind" ] || fail "$kind: what was synced is gone"
    [ ! -e mnt/late ] && [ ! -e mnt/dir ] || fail "what failed was done"
    "$xebec" umount mnt
    judge disk "$kind"
done
"#;

#[test]
fn a_log_that_cannot_be_written_ends_the_work() {
    let script = r#"
# A device that is gone altogether.
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
grep -q last mnt/kept || fail "what was synced is gone with the device"
"$xebec" umount mnt
detach
judge disk "after the device was gone"
"#;
    let script = [FAULTY, "image=faulty/image", ENDS, script].concat();
    run("a_log_that_cannot_be_written_ends_the_work", &[], &script);
}

/// A block device tells of a failure once, and has what it could not write neither in memory nor on the medium. (A loop
/// device over a file system that is full would not do: Linux 6.18 takes what the file system wrote in part for whole.)
#[test]
fn a_block_device_that_fails_ends_the_work() {
    let script = r#"
losetup -d "$image"
detach
"#;
    let begin = r#"
image=$(losetup --find --show faulty/image)
trap 'losetup -d "$image" 2> /dev/null || true' EXIT
"#;
    let script = [FAULTY, begin, ENDS, script].concat();
    run("a_block_device_that_fails_ends_the_work", &["losetup"], &script);
}
