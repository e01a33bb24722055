//! A mount in use: growing, metrics, caches of the kernel, file handles.

use crate::scripts;

/// The volume grows by a command and by the ioctl of XFS while three writers continue; the image file is extended by
/// the command or in advance.
#[test]
fn mounted_volume_grows() {
    scripts::run("mounted_volume_grows", &["xfs_repair", "python3", "setfattr"], GROWS);
}

/// The metrics over HTTP match `status`, in the format of Prometheus. Clients that send nothing, or too much, block
/// neither the mount nor its end.
#[test]
fn metrics_for_prometheus() {
    scripts::run("metrics_for_prometheus", &["xfs_repair", "python3", "setfattr"], NUMBERS);
}

/// The kernel must not cache attributes that were sent before a change and received after it: a page changed through
/// mmap is written while a `stat` waits for its reply.
#[test]
fn stale_attributes_are_not_cached() {
    scripts::run("stale_attributes_are_not_cached", &["python3"], STALE_ATTRIBUTES);
}

/// A page that was read during an asynchronous direct write stayed in the kernel's cache after the write.
#[test]
fn stale_pages_are_dropped_after_direct_writes() {
    scripts::run("stale_pages_are_dropped_after_direct_writes", &["python3"], STALE_PAGES);
}

/// File handles are valid as long as the files exist, also after the kernel has dropped their inodes, and in another
/// mount of the image.
#[test]
fn file_handles_are_valid_across_mounts() {
    scripts::run("file_handles_are_valid_across_mounts", &["python3"], HANDLES);
}

/// A write by an ordinary user clears set-ID bits. On an append-only file this was refused, and with it the write. A
/// change of the owner cleared a set-group-ID bit without group execution, which must be kept.
#[test]
fn writes_clear_only_set_id_bits() {
    scripts::run("writes_clear_only_set_id_bits", &["setpriv", "chattr"], RIGHTS);
}

const RIGHTS: &str = r#"
everybody
"$xebec" mkfs -q image --size 300m
"$xebec" mount -o allow_other image mnt
touch mnt/program mnt/notes && chmod 6777 mnt/program && chmod 666 mnt/notes
chattr +a mnt/program mnt/notes
for name in program notes; do
    setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "echo more >> mnt/$name" 2> output ||
        fail "append to $name"
done
[ "$(stat -c %a mnt/program)" = 777 ] || fail "set-ID bits remain"
# The kernel's cached mode must be updated at once.
for how in conv=notrunc conv=notrunc,fsync oflag=direct; do
    touch mnt/file && chmod 6777 mnt/file
    setpriv --reuid 65534 --regid 65534 --clear-groups dd if=/dev/zero of=mnt/file bs=4k count=1 $how 2> output ||
        fail "write with $how"
    [ "$(stat -c %a mnt/file)" = 777 ] || fail "the kernel keeps set-ID bits after a write with $how"
done
touch mnt/other && chmod 6644 mnt/other && chown 7 mnt/other
[ "$(stat -c %a mnt/other)" = 2644 ] || fail "another owner leaves $(stat -c %a mnt/other)"
"$xebec" umount mnt
judge image "written"
"#;

/// Each page with an appended line was appended as a whole, with the earlier lines: four lines became ten. A store
/// through mmap appended the whole file.
#[test]
fn data_is_appended_once() {
    scripts::run("data_is_appended_once", &["chattr", "python3"], APPENDS);
}

const APPENDS: &str = r#"
for options in rw writeback_cache; do
    rm -f image && "$xebec" mkfs -q image --size 300m
    "$xebec" mount -o $options image mnt
    echo one > mnt/notes && chattr +a mnt/notes
    for line in two three four; do echo $line >> mnt/notes; sync mnt/notes; done
    python3 - <<'EOF'
import mmap, os, subprocess
import fcntl
file = os.open("mnt/notes", os.O_WRONLY | os.O_APPEND)
fcntl.fcntl(file, fcntl.F_SETFL, 0)
try:
    os.pwrite(file, b"X", 0)
    raise SystemExit("an append-only file was overwritten")
except PermissionError:
    pass
file = os.open("mnt/notes", os.O_RDWR | os.O_APPEND)
try:
    mmap.mmap(file, 0)[0] = 88
    raise SystemExit("an append-only file was mapped for writing")
except OSError:
    pass
read = os.open("mnt/notes", os.O_RDONLY)
assert mmap.mmap(read, 0, prot=mmap.PROT_READ)[:3] == b"one"
EOF
    cp mnt/notes seen && "$xebec" umount mnt && "$xebec" mount image mnt
    printf 'one\ntwo\nthree\nfour\n' | cmp - seen || fail "with $options before a remount"
    cmp seen mnt/notes || fail "with $options after a remount"
    "$xebec" umount mnt
    judge image "appended"
done
"#;

/// With `ro`, the option `cache` was ignored.
#[test]
fn memory_of_a_read_only_mount_is_limited() {
    scripts::run("memory_of_a_read_only_mount_is_limited", &["python3"], READ_ONLY_CACHE);
}

const READ_ONLY_CACHE: &str = r#"
"$xebec" mkfs -q image --size 300m
"$xebec" mount image mnt
for n in $(seq 200); do head -c 64k /dev/urandom > mnt/$n; done
"$xebec" umount mnt
for limit in 1 64; do
    "$xebec" mount -o ro,memory=${limit}m image mnt
    cat mnt/* > /dev/null
    "$xebec" status --json mnt | python3 -c 'import json, sys; print(json.load(sys.stdin)["cache"]["bytes"])' > bytes
    "$xebec" umount mnt
    [ $(($(cat bytes) > 4 << 20)) = $((limit > 4)) ] || fail "$(cat bytes) bytes in memory with a limit of $limit MiB"
done
"#;

/// Invalid ranges were trimmed as if they were the whole volume.
#[test]
fn trim_refuses_invalid_ranges() {
    scripts::run("trim_refuses_invalid_ranges", &["fstrim"], TRIM);
}

const TRIM: &str = r#"
"$xebec" mkfs -q image --size 300m
"$xebec" mount image mnt
fstrim mnt || fail "all of it"
fstrim -o 299m mnt || fail "its end"
for wrong in '-o 300m' '-o 1t' '-l 512' '-m 300m'; do
    # shellcheck disable=SC2086 # an option and its value
    if fstrim $wrong mnt 2> output; then fail "fstrim $wrong"; fi
    grep -q 'Invalid argument' output || fail "fstrim $wrong"
done
"$xebec" umount mnt
judge image "trimmed"
"#;

const STALE_ATTRIBUTES: &str = r#"
mkdir device && head -c 1m /dev/zero > disk
"$interop" faulty disk device & behind=$!
for n in $(seq 500); do [ ! -e device/image ] || break; sleep 0.02; done
echo late > device/switch
stat --cached=never device/image > before & asked=$!
# Wait until stat waits for the reply.
sleep 1
python3 -c '
import mmap
with open("device/image", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
    memory[5000] = 7
    memory.flush()
'
echo > device/switch
wait $asked
[ "$(stat -c %.9Y device/image)" = "$(stat -c %.9Y disk)" ] || fail "a stale reply is cached"
umount device && wait $behind || fail "the server ends with $?"
"#;

const STALE_PAGES: &str = r#"
"$xebec" mkfs -q image --size 300m
"$xebec" mount image mnt
python3 -c '
import ctypes, mmap, os, platform, signal, struct, sys
setup, submit, events = (206, 209, 208) if platform.machine() == "x86_64" else (0, 2, 4)
libc, size = ctypes.CDLL(None, use_errno=True), 640 << 10
page, context = mmap.mmap(-1, size), ctypes.c_ulong(0)
assert libc.syscall(setup, 1, ctypes.byref(context)) == 0
direct = os.open("mnt/file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
plain = os.open("mnt/file", os.O_RDONLY)
readers = []
for _ in range(3):
    reader = os.fork()
    while reader == 0:
        os.pread(plain, size, 0)
    readers.append(reader)
try:
    for turn in range(1000):
        byte = bytes([turn % 255 + 1])
        page[:] = byte * size
        at = ctypes.addressof(ctypes.c_char.from_buffer(page))
        # A write (1) of all of the page, without anything else.
        control = ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, direct, at, size, 0, 0, 0, 0))
        assert libc.syscall(submit, context, 1, ctypes.byref(ctypes.pointer(control))) == 1
        done = ctypes.create_string_buffer(32)
        assert libc.syscall(events, context, 1, 1, done, None) == 1
        assert struct.unpack_from("<q", done, 16)[0] == size, "it was not written"
        if os.pread(plain, size, 0) != byte * size:
            sys.exit(f"old contents after {turn} writes")
finally:
    for reader in readers:
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)
' || fail "the kernel keeps stale pages"
"$xebec" umount mnt
judge image "written directly"
"#;

const HANDLES: &str = r#"
"$xebec" mkfs -q image --size 300m
"$xebec" mount image mnt
mkdir mnt/dir && echo kept > mnt/dir/file && echo gone > mnt/gone
cat > handles.py <<end
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
mount = os.open("mnt", os.O_RDONLY)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("handle", ctypes.c_char * 128)]
if sys.argv[1] == "take":
    for name in ["dir", "dir/file", "gone"]:
        handle, at = Handle(128), ctypes.c_int()
        assert libc.name_to_handle_at(mount, name.encode(), ctypes.byref(handle), ctypes.byref(at), 0) == 0, name
        open(name.replace("/", "-") + ".handle", "wb").write(bytes(handle))
    sys.exit()
def opened(name, change=lambda handle: None):
    handle = Handle.from_buffer_copy(open(name + ".handle", "rb").read())
    change(handle)
    fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    return fd if fd >= 0 else errno.errorcode[ctypes.get_errno()]
assert os.read(opened("dir-file"), 9) == b"kept\\n"
assert os.listdir(opened("dir")) == ["file"]
assert opened("gone") == "ESTALE", "it was removed"
def wrong(byte):
    def change(handle):
        at = ctypes.addressof(handle) + Handle.handle.offset + byte
        ctypes.c_ubyte.from_address(at).value ^= 255
    return change
for byte in range(12):
    assert opened("dir-file", wrong(byte)) == "ESTALE", byte
assert os.read(opened("dir-file"), 9) == b"kept\\n"
end
python3 handles.py take || fail "cannot get handles"
rm mnt/gone
"$xebec" umount mnt && "$xebec" mount image mnt
python3 handles.py use || fail "cannot open handles"
"$xebec" umount mnt
judge image "opened by handles"
"#;

const GROWS: &str = r#"
"$xebec" mkfs -q a.img --size 64m
"$xebec" mount -o allow_other a.img mnt
write() {
    mkdir "mnt/$1"
    for i in $(seq 400); do
        [ -e stop ] && break
        head -c $((i * 997)) /dev/urandom > "mnt/$1/file$i"
        if [ $((i % 5)) = 0 ]; then rm "mnt/$1/file$((i - 3))"; fi
    done
    touch "done-$1"
}
size() { stat -f -c '%b * %S' mnt | xargs -I X sh -c 'echo $((X))'; }
write one & write two & write three &
"$xebec" grow mnt +64m > output || fail "grow by"
[ "$(stat -c %s a.img)" = $((128 << 20)) ] || fail "the file is no longer"
"$xebec" grow --json mnt 300m > output || fail "grow to"
python3 -c '
import json
d = json.load(open("output"))
assert d["command"] == "grow" and d["before_bytes"] == 128 << 20 and d["after_bytes"] == 300 << 20, d
'
truncate -s 500m a.img
"$xebec" grow mnt > output || fail "grow to the file"
grep -q '300.* -> 500' output || fail "grow to the file"
"$xebec" grow mnt > output 2>&1 || fail "nothing to do"
grep -q unchanged output || fail "nothing to do"
# The ioctl of xfs_growfs.
python3 -c '
import fcntl, os, struct
d = os.open("mnt", os.O_RDONLY)
fcntl.ioctl(d, 0x4010586e, struct.pack("QII", (700 << 20) // 4096, 25, 0))
'
before=$(size)
for wrong in 100m 80g; do
    if "$xebec" grow mnt $wrong > output 2>&1; then fail "$wrong"; fi
done
grep -q '64 times' output || fail "too much at once"
chmod 777 mnt
python3 -c '
import errno, fcntl, os, struct
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for ask in (lambda: os.setxattr("mnt", "user.xebec.grow", b"200000"),
            lambda: fcntl.ioctl(os.open("mnt", os.O_RDONLY), 0x4010586e, struct.pack("QII", 200000, 25, 0))):
    try:
        ask()
    except OSError as error:
        assert error.errno == errno.EPERM, error
    else:
        raise SystemExit("an ordinary user may grow it")
'
[ "$(size)" = "$before" ] || fail "it has changed"
for wrong in x '' -1; do
    if setfattr -n user.xebec.grow -v "$wrong" mnt 2> output; then fail "\"$wrong\" is accepted"; fi
done
# Into the new space.
head -c 400000000 /dev/urandom > mnt/large
touch stop
wait
[ -e done-one ] && [ -e done-two ] && [ -e done-three ] || fail "a writer failed"
if getfattr -d mnt 2> /dev/null | grep xebec; then fail "the attribute is listed"; fi
list_tree mnt > expected
"$xebec" umount mnt
judge a.img grown
compare_with_kernel a.img expected
"$xebec" mount -o ro a.img mnt
if "$xebec" grow mnt +100m > output 2>&1; then fail "grown while read-only"; fi
"$xebec" umount mnt
"$xebec" check a.img > output || fail "afterwards"
"#;

const NUMBERS: &str = r##"
"$xebec" mkfs -q a.img --size 300m
"$xebec" mount a.img mnt
"$xebec" status mnt > output
if grep -q metrics output; then fail "metrics without the option"; fi
"$xebec" umount mnt
"$xebec" mount -o metrics=0 a.img mnt
port=$("$xebec" status mnt | sed -n 's|^metrics *http://127.0.0.1:\([0-9]*\)/metrics$|\1|p')
[ -n "$port" ] || fail "no port"
for i in $(seq 50); do echo $i > mnt/$i; done
cat mnt/* > /dev/null
if cat mnt/nothing 2> /dev/null; then fail "there is nothing"; fi
setfattr -n user.x -v y mnt/1
"$xebec" status --json mnt > status.json
cat > metrics.py <<'END'
import json, re, sys, urllib.request
port = sys.argv[1]
with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", answer.headers
    text = answer.read().decode()
types, values = {}, {}
for line in text.splitlines():
    if line.startswith("# TYPE "):
        name, kind = line.split()[2:]
        assert name not in types, name
        types[name] = kind
    elif not line.startswith("# HELP "):
        name, labels, value = re.fullmatch(r'(\w+)(?:\{(.*)\})? ([0-9.e+-]+)', line).groups()
        base = re.sub("_(bucket|sum|count)$", "", name)
        kind = types.get(base if base in types else name)
        assert kind and (kind != "counter" or name.endswith("_total")), line
        assert (name, labels) not in values, line
        values[name, labels] = float(value)
status = json.load(open("status.json"))
for name, known in (("xebec_volume_bytes", status["bytes"]), ("xebec_inodes", status["inodes"]),
                    ("xebec_device_bytes", 300 << 20), ("xebec_threads", status["threads"])):
    assert values[name, None] == known, (name, known, values[name, None])
assert values["xebec_log_commits_total", None] >= status["log"]["commits"] > 0
assert values["xebec_cache_bytes", None] > 0
for kind in status["operations"]:
    label = f'operation="{kind["name"]}"'
    times = "xebec_operation_duration_seconds"
    count = values[times + "_count", label]
    assert count >= kind["count"], kind
    assert values["xebec_operations_failed_total", label] >= kind["failed"], kind
    buckets = [v for (n, l), v in values.items() if n == times + "_bucket" and l.startswith(label + ",")]
    assert len(buckets) == 12 and buckets == sorted(buckets) and buckets[-1] == count, buckets
    assert values[times + "_sum", label] > 0
END
python3 metrics.py "$port" || fail "wrong metrics"
# Clients that send nothing, that send without end, and that do not read the reply.
cat > clients.py <<'END'
import socket, sys, time
at = ("127.0.0.1", int(sys.argv[1]))
clients = []
for number in range(60):
    client = socket.create_connection(at)
    client.setblocking(False)
    clients.append(client)
    try:
        client.send([b"", b"GET /metrics HTTP/1.1\r\n\r\n", b"x" * 100000][number % 3])
    except OSError:
        pass
open("connected", "w")
time.sleep(600)
END
python3 clients.py "$port" &
clients=$!
for i in $(seq 100); do [ -e connected ] && break; sleep 0.1; done
for i in $(seq 200); do echo $i > mnt/again$i; done
[ "$(cat mnt/again200)" = 200 ] || fail "the mount"
since=$SECONDS
"$xebec" umount mnt
[ $((SECONDS - since)) -lt 4 ] || fail "it took $((SECONDS - since)) s to end"
kill $clients
judge a.img afterwards
# An address in use.
"$xebec" mkfs -q b.img --size 300m
"$xebec" mount -o metrics=127.0.0.1:0 a.img mnt
port=$("$xebec" status mnt | sed -n 's|^metrics *http://127.0.0.1:\([0-9]*\)/metrics$|\1|p')
mkdir other
if "$xebec" mount -o metrics=$port b.img other 2> output; then fail "two mounts at one port"; fi
grep -q 'cannot listen at' output || fail "two mounts at one port"
if mountpoint -q other; then fail "mounted without metrics"; fi
"$xebec" umount mnt
"##;
