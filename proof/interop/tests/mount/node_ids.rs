//! What the server keeps for files that the kernel knows: nothing but for files without names, which stay usable.

use crate::scripts;

/// A server kept each inode that the kernel had looked up: after a walk over 8 million files it had 1.4 GB. Now their
/// memory is limited, and what the kernel knows is found again.
#[test]
fn memory_does_not_grow_with_the_names_that_the_kernel_knows() {
    let test = "memory_does_not_grow_with_the_names_that_the_kernel_knows";
    scripts::run(test, &["python3", "xfs_repair"], WALK);
}

const WALK: &str = r#"
cat > tree.py <<'EOF'
import io, tarfile
with tarfile.open("tree.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
    for number in range(120000):
        tar.addfile(tarfile.TarInfo(f"{number // 1000}/{number:05}"), io.BytesIO())
EOF
python3 tree.py
"$xebec" create -q image --from tree.tar --size 300m
"$xebec" mount -o memory=16m image mnt
cat > walk.py <<'EOF'
import json, os, subprocess, sys
def status():
    return json.loads(subprocess.check_output([sys.argv[1], "status", "--json", "mnt"]))
def resident():
    lines = open(f"/proc/{status()['process']}/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))
found, sizes = {}, []
for path, _, names in os.walk("mnt"):
    for name in names:
        found[f"{path}/{name}"] = os.stat(f"{path}/{name}").st_ino
    if len(found) % 40000 == 0:
        sizes.append(resident())
assert len(found) == 120000
memory = status()["memory"]
print(sizes, memory)
assert memory["inodes"] <= 16 << 20, memory
assert sizes[-1] <= (16 + 48) << 20, sizes
# In an order in which neighbours are not together.
paths = list(found)
for n in range(15000):
    os.utime(paths[n * 7919 % len(paths)], (n, n))
for n in range(15000):
    path = paths[n * 7919 % len(paths)]
    now = os.stat(path)
    assert (now.st_ino, now.st_mtime) == (found[path], n), path
EOF
python3 walk.py "$xebec" > output 2>&1 || fail "a walk"
"$xebec" umount mnt
judge image "walked"
"#;

/// A file without names is usable as long as a process has it: as its directory, through a descriptor of `O_PATH`, a
/// mapping or an open file. Its number is not used for another file before the kernel has forgotten it.
#[test]
fn removed_files_stay_usable() {
    scripts::run("removed_files_stay_usable", &["python3", "xfs_repair"], REMOVED);
}

const REMOVED: &str = r#"
"$xebec" mkfs -q image --size 300m
"$xebec" mount -o memory=1m image mnt
cat > removed.py <<'EOF'
import mmap, os, threading
def drop_caches():
    os.sync()
    open("/proc/sys/vm/drop_caches", "w").write("2")
def fill(directory, count):
    os.makedirs(directory, exist_ok=True)
    for n in range(count):
        open(f"{directory}/{n}", "w").write(str(n))
def refused(call, *arguments):
    try:
        call(*arguments)
    except FileNotFoundError:
        return
    raise SystemExit(f"{call} {arguments} succeeds in a removed directory")
top = os.path.abspath("mnt")
# A directory that a process is in.
os.mkdir(f"{top}/cwd")
os.chdir(f"{top}/cwd")
ino = os.stat(".").st_ino
os.rmdir(f"{top}/cwd")
fill(f"{top}/others", 3000)
drop_caches()
assert (os.stat(".").st_nlink, os.stat(".").st_ino) == (0, ino)
refused(os.mkdir, "new")
refused(os.stat, "none")
refused(os.open, "new", os.O_CREAT | os.O_RDWR)
assert os.listdir(".") == []
os.chdir(top)
# Descriptors of O_PATH, mappings, open files, files that never had a name.
kept = []
for n in range(200):
    name, contents = f"{top}/kept{n}", f"contents {n}".encode() * 1000
    if n % 4 == 3:
        held = os.open(top, os.O_TMPFILE | os.O_RDWR)
        os.write(held, contents)
        kept.append((n, held, os.fstat(held).st_ino))
        continue
    open(name, "wb").write(contents)
    ino = os.stat(name).st_ino
    if n % 4 == 0:
        held = os.open(name, os.O_PATH)
    elif n % 4 == 1:
        with open(name, "r+b") as file:
            held = mmap.mmap(file.fileno(), 0)
    else:
        held = os.open(name, os.O_RDWR)
    kept.append((n, held, ino))
    if n % 8 < 4:
        os.unlink(name)
    else:
        open(f"{top}/new{n}", "w").close()
        os.rename(f"{top}/new{n}", name)
fill(f"{top}/more", 3000)
drop_caches()
numbers = {os.stat(f"{path}/{name}").st_ino for path, _, names in os.walk(top) for name in names}
for n, held, ino in kept:
    assert ino not in numbers, "the number was used again"
    contents = f"contents {n}".encode() * 1000
    if n % 4 == 0:
        assert (os.fstat(held).st_ino, os.fstat(held).st_nlink) == (ino, 0)
        again = os.open(f"/proc/self/fd/{held}", os.O_RDONLY)
        assert os.read(again, 20000) == contents
        os.close(again)
        os.close(held)
    elif n % 4 == 1:
        held[0:8] = b"CONTENTS"
        held.flush()
        assert held[8:] == contents[8:]
        held.close()
    else:
        assert os.pread(held, 20000, 0) == contents
        assert os.fstat(held).st_nlink == 0
        if n % 4 == 3:
            os.link(f"/proc/self/fd/{held}", f"{top}/linked{n}", src_dir_fd=held, follow_symlinks=True)
        os.close(held)
drop_caches()
for n in range(3, 200, 4):
    assert open(f"{top}/linked{n}", "rb").read() == f"contents {n}".encode() * 1000
# Names that come and go, while other threads look them up and the kernel drops its inodes.
stop, failed = False, []
def look():
    while not stop:
        for n in range(20):
            try:
                file = os.open(f"{top}/busy/{n}", os.O_PATH)
            except FileNotFoundError:
                continue
            found = os.fstat(file)
            assert os.fstat(file).st_ino == found.st_ino
            os.close(file)
        os.listdir(f"{top}/busy")
def drop():
    while not stop:
        open("/proc/sys/vm/drop_caches", "w").write("2")
        fill(f"{top}/more", 50)
def guarded(run):
    try:
        run()
    except BaseException as error:
        failed.append(repr(error))
os.mkdir(f"{top}/busy")
threads = [threading.Thread(target=guarded, args=(run,)) for run in (look, look, drop)]
for thread in threads:
    thread.start()
for n in range(3000):
    name = f"{top}/busy/{n % 20}"
    if n % 3 == 0:
        file = os.open(name, os.O_CREAT | os.O_RDWR)
        os.unlink(name)
        os.write(file, b"removed")
        assert os.fstat(file).st_size == 7
        os.close(file)
    elif n % 3 == 1:
        os.mkdir(name)
        os.rmdir(name)
    else:
        open(name, "w").close()
        os.link(name, f"{top}/link")
        os.unlink(name)
        os.unlink(f"{top}/link")
stop = True
for thread in threads:
    thread.join()
assert not failed, failed
EOF
python3 removed.py > output 2>&1 || fail "removed files"
"$xebec" umount mnt
judge image "files were removed in use"
"#;
