//! What a careful user tries: damaged files, odd callers, and what the kernel's XFS answers.

use crate::bed;

/// The reading of a directory ended at a file whose inode cannot be read, with an error, and what had been listed
/// before it was kept for ever.
#[test]
fn a_damaged_file_hides_no_other() {
    bed::run("a_damaged_file_hides_no_other", &["xfs_db"], DAMAGED);
}

const DAMAGED: &str = r#"
# Breaks inode $1 of the image.
damage() {
    at=$(xfs_db -r -c "convert inode $1 byte" image | sed 's/.*(\([0-9]*\)).*/\1/')
    printf 'damaged' | dd of=image bs=1 seek=$((at + 100)) conv=notrunc 2> said
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
[ "$(ls -l mnt/dir 2> said | grep -vc '^total')" -ge 199 ] || fail "ls -l shows too little"
grep -q 77 said || fail "nobody is told of the damaged file"
[ "$(cat mnt/dir/78)" = 78 ] || fail "another file"
! cat mnt/dir/77 2> said || fail "a damaged file can be read"
"$xebec" umount mnt
# The root directory itself: there is nothing to be mounted.
root=$(xfs_db -r -c 'sb 0' -c 'print rootino' image | sed 's/.* //')
damage "$root"
! "$xebec" mount image mnt 2> said || fail "a volume without a root directory is mounted"
grep -q 'root' said || fail "what is wrong is not said"
"#;

/// Each of these was refused, kept or shown otherwise than by the kernel's XFS.
#[test]
fn answers_are_those_of_the_kernel() {
    bed::run("answers_are_those_of_the_kernel", &["setpriv", "chattr", "setfattr", "python3"], ANSWERS);
}

const ANSWERS: &str = r#"
everybody
cat > judge.py <<'EOF'
import os, subprocess, sys

top = sys.argv[1]
path = lambda name: os.path.join(top, name)
def mode(name): return "%o" % (os.stat(path(name)).st_mode & 0o7777)
def new(name, bits):
    with open(path(name), "w") as file: file.write("x" * 100)
    os.chmod(path(name), bits)
def nobody(*command): return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command],
                                            capture_output=True, text=True)
os.chmod(top, 0o755)
# A change of the owner that is refused takes no rights away.
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
# What is not there can be removed, of lists alone.
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
EOF
for shape in '' '-i maxpct=1' '-b size=1024'; do
    rm -f image && "$xebec" mkfs -q image --size 400m $shape
    cp --sparse=always image theirs
    "$xebec" mount -o allow_other image mnt && python3 judge.py mnt > ours 2> said || fail "the mount, $shape"
    "$xebec" umount mnt
    mkdir -p judged && mount -o loop theirs judged
    python3 judge.py judged > wanted 2> said || fail "the kernel, $shape"
    umount judged
    diff wanted ours > said || fail "the kernel answers otherwise, $shape"
done
"#;

/// A file is nothing to mount on. A link to the directory was not taken for it.
#[test]
fn directories_are_found_by_any_path() {
    bed::run("directories_are_found_by_any_path", &[], PATHS);
}

const PATHS: &str = r#"
"$xebec" mkfs -q image --size 300m
touch file
! "$xebec" mount image file 2> said || fail "a volume is mounted on a file"
grep -qi 'not a directory' said || fail "what is wrong is not said"
ln -s mnt link && mkdir deep && ln -s ../link deep/link
for path in link link/ deep/link mnt/ ./mnt "$PWD/deep/../link"; do
    "$xebec" mount image mnt
    "$xebec" umount "$path" 2> said || fail "umount $path"
done
! "$xebec" umount mnt 2> said || fail "nothing is mounted"
"#;

/// The server kept what its caller had open, so that a pipe never ended; and with SIGTERM blocked by its caller, it
/// could not be asked to unmount.
#[test]
fn a_server_inherits_neither_descriptors_nor_blocked_signals() {
    bed::run("a_server_inherits_neither_descriptors_nor_blocked_signals", &["python3"], INHERITS);
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
assert ready and os.read(ours, 1) == b"", "somebody has the pipe open"
status = json.loads(subprocess.check_output([os.environ["XEBEC"], "status", "--json", "mnt"]))
server = os.pidfd_open(status["process"])
os.kill(status["process"], signal.SIGTERM)
select.select([server], [], [])
assert not os.path.ismount("mnt")
EOF
"#;
