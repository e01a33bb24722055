//! Damaged files, unusual callers, and comparison of error numbers with the kernel's XFS.

use crate::scripts;

/// Listing a directory ended with an error at a file whose inode cannot be read, and the kernel cached the incomplete
/// list.
#[test]
fn damaged_file_does_not_hide_others() {
    scripts::run("damaged_file_does_not_hide_others", &["xfs_db"], DAMAGED);
}

const DAMAGED: &str = r#"
# Breaks inode $1 of the image.
damage() {
    at=$(xfs_db -r -c "convert inode $1 byte" image | sed 's/.*(\([0-9]*\)).*/\1/')
    printf 'damaged' | dd of=image bs=1 seek=$((at + 100)) conv=notrunc 2> output
}
"$xebec" mkfs -q image --size 300m
"$xebec" mount image mnt
mkdir mnt/dir && for n in $(seq 200); do echo $n > mnt/dir/$n; done
inode=$(stat -c %i mnt/dir/77)
root=$(stat -c %i mnt)
"$xebec" umount mnt
damage "$inode"
"$xebec" mount image mnt
[ "$(ls mnt/dir | wc -l)" = 200 ] || fail "names are missing"
[ "$(ls -l mnt/dir 2> output | grep -vc '^total')" -ge 199 ] || fail "ls -l shows too little"
grep -q 77 output || fail "the damaged file is not reported"
[ "$(cat mnt/dir/78)" = 78 ] || fail "another file"
! cat mnt/dir/77 2> output || fail "a damaged file can be read"
"$xebec" umount mnt
# The root directory itself.
root=$(xfs_db -r -c 'sb 0' -c 'print rootino' image | sed 's/.* //')
damage "$root"
! "$xebec" mount image mnt 2> output || fail "a volume without a root directory is mounted"
grep -q 'root' output || fail "no message about the cause"
"#;

/// Each of these results differed from the kernel's XFS.
#[test]
fn results_match_the_kernels_xfs() {
    scripts::run("results_match_the_kernels_xfs", &["setpriv", "chattr", "setfattr", "python3"], RESULTS);
}

const RESULTS: &str = r#"
everybody
cat > judge.py <<'EOF'
import ctypes, os, subprocess, sys

top = sys.argv[1]
path = lambda name: os.path.join(top, name)
def mode(name): return "%o" % (os.stat(path(name)).st_mode & 0o7777)
def new(name, bits):
    with open(path(name), "w") as file: file.write("x" * 100)
    os.chmod(path(name), bits)
def nobody(*command): return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command],
                                            capture_output=True, text=True)
os.chmod(top, 0o755)
# A refused change of the owner does not clear set-ID bits.
new("kept", 0o6755)
subprocess.run(["chattr", "+i", path("kept")], check=True)
try:
    os.chown(path("kept"), 5, 5)
    print("the owner of an immutable file was changed")
except PermissionError:
    pass
print("immutable", mode("kept"))
subprocess.run(["chattr", "-i", path("kept")], check=True)
os.chown(path("kept"), 5, 5)
print("another owner", mode("kept"))
# Truncation by root, and by others.
for who in "root", "nobody":
    for size in 50, 0, 200:
        new("cut", 0o6777)
        if who == "root": os.truncate(path("cut"), size)
        else: print(nobody("truncate", "-s", str(size), path("cut")).returncode)
        print(who, "truncates to", size, mode("cut"))
# Removing a missing ACL succeeds; removing another missing attribute fails.
new("plain", 0o644)
for name in "system.posix_acl_access", "user.none":
    try:
        os.removexattr(path("plain"), name)
        print("removed", name)
    except OSError as error:
        print("removed", name, error.errno)
os.setxattr(path("plain"), "trusted.secret", b"1")
os.setxattr(path("plain"), "user.open", b"2")
print(sorted(os.listxattr(path("plain"))))
print(nobody("python3", "-c", "import os, sys; print(os.listxattr(sys.argv[1]))", path("plain")).stdout)
space = os.statvfs(top)
print(space.f_bsize, space.f_frsize, space.f_blocks, space.f_files - space.f_ffree)
print("limit", space.f_files < 1 << 20)
# RENAME_NOREPLACE (1) together with RENAME_WHITEOUT (4) was refused.
libc = ctypes.CDLL(None, use_errno=True)
at = lambda name: (-100, os.fsencode(path(name)))
for flags in range(9):
    for exists in False, True:
        new("old", 0o644)
        if exists: new("other", 0o600)
        error = ctypes.get_errno() if libc.renameat2(*at("old"), *at("other"), flags) else 0
        names = [name for name in ("old", "other") if os.path.lexists(path(name))]
        print("renameat2", flags, exists, error, [(name, "%o" % os.lstat(path(name)).st_mode) for name in names])
        for name in names: os.remove(path(name))
EOF
for shape in '' '-i maxpct=1' '-b size=1024'; do
    rm -f image && "$xebec" mkfs -q image --size 400m $shape
    cp --sparse=always image theirs
    "$xebec" mount -o allow_other image mnt && python3 judge.py mnt > ours 2> output || fail "the mount, $shape"
    "$xebec" umount mnt
    mkdir -p judged && mount -o loop theirs judged
    python3 judge.py judged > wanted 2> output || fail "the kernel, $shape"
    umount judged
    diff wanted ours > output || fail "the kernel gives other results, $shape"
done
"#;

/// A mount point must be a directory. umount did not accept symlinks to the mount point.
#[test]
fn mount_points_are_found_by_any_path() {
    scripts::run("mount_points_are_found_by_any_path", &[], PATHS);
}

const PATHS: &str = r#"
"$xebec" mkfs -q image --size 300m
touch file
! "$xebec" mount image file 2> output || fail "a volume is mounted on a file"
grep -qi 'not a directory' output || fail "no message about the cause"
ln -s mnt link && mkdir deep && ln -s ../link deep/link
for path in link link/ deep/link mnt/ ./mnt "$PWD/deep/../link"; do
    "$xebec" mount image mnt
    "$xebec" umount "$path" 2> output || fail "umount $path"
done
! "$xebec" umount mnt 2> output || fail "nothing is mounted"
"#;

/// The server inherited open files of its caller, so a pipe was never closed; and with SIGTERM blocked by the caller,
/// it could not be stopped.
#[test]
fn server_inherits_neither_descriptors_nor_blocked_signals() {
    scripts::run("server_inherits_neither_descriptors_nor_blocked_signals", &["python3"], INHERITS);
}

const INHERITS: &str = r#"
"$xebec" mkfs -q image --size 300m
XEBEC=$xebec python3 - <<'EOF'
import json, os, select, signal, subprocess
ours, its = os.pipe()
os.set_inheritable(its, True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
subprocess.run([os.environ["XEBEC"], "mount", "image", "mnt"], check=True, close_fds=False)
os.close(its)
ready, _, _ = select.select([ours], [], [], 0)
assert ready and os.read(ours, 1) == b"", "the pipe is still open"
status = json.loads(subprocess.check_output([os.environ["XEBEC"], "status", "--json", "mnt"]))
server = os.pidfd_open(status["process"])
os.kill(status["process"], signal.SIGTERM)
select.select([server], [], [])
assert not os.path.ismount("mnt")
EOF
"#;
