//! All ways in which a mount ends.

use crate::scripts::run;

/// After a kill of the server at any time the volume can be mounted or replayed at once, and has all synced files. The
/// lock of the image used to outlive the server's mark for some milliseconds, and the next program was refused.
#[test]
fn killed_server_loses_nothing_that_was_synced() {
    let script = r#"
"$xebec" mkfs -q image --size 300m
: > synced
for round in $(seq 12); do
    "$xebec" mount image mnt
    server=$("$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/')
    [ ! -s synced ] || (cd mnt && sed 's/ /  /' ../synced | sha256sum --quiet -c -) ||
        fail "round $round: a synced file is not whole"
    (n=0; while n=$((n + 1)); mkdir -p mnt/r$round/d$((n % 7)); do
        name=r$round/d$((n % 7))/f$n
        head -c $((n * 977 % 40000)) /dev/urandom > mnt/$name || break
        echo unsynced >> mnt/r$round/log || break
        sync mnt/$name mnt/r$round/d$((n % 7)) mnt/r$round mnt 2> /dev/null || break
        sum=$(sha256sum < mnt/$name) || break
        echo "${sum%% *} $name" >> synced.new
    done) 2> /dev/null & worker=$!
    while [ ! -s synced.new ]; do sleep 0.01; done
    sleep 0.$((round * 37 % 50 + 10))
    kill -9 $server
    wait $worker || true
    cat synced.new >> synced && rm synced.new
    umount -l mnt 2> /dev/null || true
done
"$xebec" replay image > output 2>&1 || fail replay
judge image "after twelve kills"
mkdir judged && mount -t xfs -o loop,nouuid,ro image judged
(cd judged && sed 's/ /  /' ../synced | sha256sum --quiet -c -) || fail "the kernel misses a synced file"
umount judged
"#;
    run("killed_server_loses_nothing_that_was_synced", &[], script);
}

/// Names and data are in the image after some seconds, although nobody synced them: it took half a minute, and longer
/// for names. A copy of the image is recovered and extracted until it has everything.
#[test]
fn killed_server_loses_little_that_nobody_synced() {
    let script = r#"
"$xebec" mkfs -q image --size 300m
for options in rw commit=1; do
    "$xebec" mount -o $options image mnt
    server=$("$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/')
    mkdir -p mnt/$options/dir
    for n in $(seq 200); do echo "contents $n" > mnt/$options/dir/$n; done
    head -c 5M /dev/urandom > mnt/$options/large
    mv mnt/$options/dir/7 mnt/$options/moved && rm mnt/$options/dir/8 && ln -s target mnt/$options/link
    (cd mnt && list_tree $options) > expected
    # Until a copy has everything; the copy is no snapshot, so it may be inconsistent while the image is written.
    for try in $(seq 600); do
        rm -rf copied && cp image copy && "$xebec" extract copy --to copied > output 2>&1 &&
            (cd copied && list_tree $options) 2> output | cmp -s - expected && break
        [ $try -lt 600 ] || fail "$options: it is not in the image after a minute"
        sleep 0.1
    done
    kill -9 $server
    umount -l mnt
    "$xebec" replay image > output 2>&1 || fail "$options: replay"
    judge image "$options: killed"
    mkdir -p judged && mount -t xfs -o loop,nouuid,ro,noatime image judged
    (cd judged && list_tree $options) > shown
    umount judged
    diff expected shown > output || fail "$options: the kernel shows a different tree"
done
"#;
    run("killed_server_loses_little_that_nobody_synced", &["xfs_repair"], script);
}

#[test]
fn mount_ends_by_unmount_or_signal() {
    let script = r#"
"$xebec" mkfs -q image --size 100m
server() { "$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/'; }
gone() {
    for n in $(seq 500); do kill -0 $1 2> /dev/null || return 0; sleep 0.02; done
    fail "$2: the server is still there"
}

# A signal unmounts, without losing unsynced files.
"$xebec" mount image mnt && echo one > mnt/one && pid=$(server)
kill -TERM $pid && gone $pid SIGTERM
[ ! -e mnt/one ] || fail "still mounted after SIGTERM"
judge image "after SIGTERM"

# A mount in use is not unmounted; a lazy unmount waits for the last user.
"$xebec" mount image mnt && [ "$(cat mnt/one)" = one ] && pid=$(server)
exec 5> mnt/open
if "$xebec" umount mnt 2> output; then fail "unmounted while a file is open"; fi
grep -q 'busy' output || fail "no message why it cannot be unmounted"
"$xebec" umount --lazy mnt
echo late >&5
rm -f nothing; exec 5>&-
gone $pid "a lazy unmount"
judge image "after a lazy unmount"

# A second signal unmounts at once, with an open unlinked file.
"$xebec" mount image mnt && [ "$(cat mnt/open)" = late ] && pid=$(server)
exec 5> mnt/unlinked && rm mnt/unlinked && echo two > mnt/two && sync mnt/two mnt
kill -TERM $pid; sleep 0.5; kill -TERM $pid 2> /dev/null || true
gone $pid "two signals"
exec 5>&- || true
umount -l mnt 2> /dev/null || true
"$xebec" mount image mnt && [ "$(cat mnt/two)" = two ] && "$xebec" umount mnt
judge image "after two signals"

# umount(8) works, too.
"$xebec" mount image mnt && echo three > mnt/three && pid=$(server) && umount mnt
gone $pid umount
judge image "after umount"

# In the foreground, as for a service.
"$xebec" mount --foreground image mnt & pid=$!
for n in $(seq 500); do mountpoint -q mnt && break; sleep 0.02; done
[ "$(cat mnt/three)" = three ] && kill -INT $pid
wait $pid || fail "the foreground ends with $?"
"#;
    run("mount_ends_by_unmount_or_signal", &[], script);
}

#[test]
fn mounted_image_is_locked() {
    let script = r#"
"$xebec" mkfs -q image --size 100m
"$xebec" mount image mnt
mkdir other
for command in "mount image other" "touch image /x" "grow image 200m" "trim image"; do
    if "$xebec" $command > output 2>&1; then fail "$command succeeds on a mounted image"; fi
    grep -q "mounted on $PWD/mnt" output || fail "$command: no message why"
done
# Replacing it is refused, too; commands that only read print a warning.
mkdir from
"$xebec" mkfs -q new --size 100m
sum=$(stat -c %i image)
for command in "create --force image --from from" "clone --force new image" "clone image copy" "mkfs -f image"; do
    if "$xebec" $command > output 2>&1; then fail "$command succeeds on a mounted image"; fi
    grep -q "mounted on $PWD/mnt" output || fail "$command: no message why"
done
[ "$sum" = "$(stat -c %i image)" ] && [ ! -e copy ] || fail "the mounted image was replaced"
"$xebec" ls --json image 2> output | python3 -m json.tool > /dev/null || fail "no JSON beside a warning"
[ "$(grep -c "warning.*mounted on $PWD/mnt" output)" = 1 ] || fail "a reader gets no warning"
"$xebec" mount -o ro image other && ls other && "$xebec" umount other
"$xebec" umount mnt
mount -t xfs -o loop image mnt
for command in "mount image other" "touch image /x"; do
    if "$xebec" $command > output 2>&1; then fail "$command succeeds while the kernel has the image"; fi
    grep -q 'in use as /dev/loop' output || fail "$command: the kernel's mount is not mentioned"
done
for command in "create --force image --from from" "clone --force new image" "clone image copy" "mkfs -f image"; do
    if "$xebec" $command > output 2>&1; then fail "$command succeeds while the kernel has the image"; fi
    grep -q 'in use as /dev/loop' output || fail "$command: the kernel's mount is not mentioned"
done
loop=$(losetup -n -O NAME -j image)
for device in image $loop; do
    "$xebec" ls $device 2> output
    grep -q "warning: the kernel has it mounted on $PWD/mnt" output || fail "$device: a reader gets no warning"
done
mount -o remount,ro mnt
"$xebec" ls image 2> output
if grep warning output; then fail "a warning about a read-only mount"; fi
mount -o remount,rw mnt
umount mnt
"$xebec" mount image mnt && touch mnt/old
"$xebec" umount mnt
"$xebec" mount -o ro image mnt
if touch mnt/x 2> output; then fail "a file is made on a mount that is read only"; fi
# A volume opened read-only stays read-only after a remount by the kernel: changes would be lost.
mount -i -o remount,rw mnt
for change in "touch mnt/x" "truncate -s 1m mnt/old" "rm mnt/old" "chattr +A mnt/old" "fstrim mnt"; do
    if $change 2> output; then fail "$change: done on a volume that is read only"; fi
    grep -q 'Read-only file system' output || fail "$change: $(cat output)"
done
sum=$(sha256sum image) && ls -lR mnt && "$xebec" umount mnt && [ "$sum" = "$(sha256sum image)" ] || fail "ro wrote"
if "$xebec" mount nothing mnt 2> output; then fail "nothing is mounted"; fi
if "$xebec" mount image nowhere 2> output; then fail "mounted nowhere"; fi
if "$xebec" mount -o sparkling image mnt 2> output; then fail "an unknown option"; fi
grep -q sparkling output || fail "the unknown option is not named"
if "$xebec" umount mnt 2> output; then fail "unmounted what was not mounted"; fi
grep -q 'not mounted' output || fail "no message that nothing is mounted"
"#;
    run("mounted_image_is_locked", &[], script);
}

/// `umount(8)` returns before the server has written all data: of thirty mounts right after it, eight were refused.
/// Here the server is stopped to delay it, and `umount(2)` is called directly, as `umount(8)` does.
#[test]
fn mount_waits_for_the_previous_server() {
    let script = r#"
"$xebec" mkfs -q image --size 100m
server=
device=image
trap 'kill -CONT $server 2> /dev/null || true; [ $device = image ] || losetup -d $device' EXIT
# waits COMMAND...: it must report that it waits for the stopped server, and succeed after the server continues.
waits() {
    mkfifo output.pipe
    "$xebec" "$@" 2> output.pipe > /dev/null & late=$!
    exec 5< output.pipe && rm output.pipe
    read -r -t 600 line <&5 || fail "$*: it did not report that it waits"
    case "$line" in *"still writing: waiting"*) ;; *) fail "$*: $line" ;; esac
    kill -CONT $server
    wait $late || fail "$*: it failed"
    exec 5<&-
}
for kind in file device; do
    [ $kind = file ] || device=$(losetup --find --show image)
    for command in "mount $device mnt" "touch $device /new" "mkfs -f $device --no-discard"; do
        "$xebec" mount $device mnt && echo kept > mnt/file
        server=$("$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/')
        kill -STOP $server
        python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).umount2(b"mnt", 0))' || fail umount
        waits $command
        case $command in mount*) [ "$(cat mnt/file)" = kept ] && "$xebec" umount mnt ;; esac
    done
done
losetup -d $device
device=image
judge image "after all"
# In quick succession.
for round in $(seq 30); do
    "$xebec" mount -q image mnt || fail "refused in round $round"
    echo $round > mnt/file && umount mnt
done
"#;
    run("mount_waits_for_the_previous_server", &["losetup"], script);
}

/// A full volume returns ENOSPC and keeps its files.
#[test]
fn full_volume_returns_enospc() {
    let script = r#"
"$xebec" mkfs -q image --size 40m
"$xebec" mount image mnt
if dd if=/dev/zero of=mnt/large bs=64k status=none 2> output; then fail "more than the volume can hold"; fi
grep -q 'No space left' output || fail "an error other than ENOSPC"
rm mnt/large && sync mnt
# The free space of df can be allocated, except for metadata of such a large file.
head -c 4M /dev/zero > mnt/waits
fallocate -l $(($(stat -f -c '(%a - 64) * %S' mnt))) mnt/large || fail "less than is free"
rm mnt/large mnt/waits
head -c 8M /dev/urandom > mnt/fits && sum=$(sha256sum < mnt/fits)
"$xebec" umount mnt
judge image "after it was full"
"$xebec" mount image mnt && [ "$sum" = "$(sha256sum < mnt/fits)" ] && "$xebec" umount mnt
"#;
    run("full_volume_returns_enospc", &[], script);
}

/// Pages of holes that were changed through `mmap` are written when the volume is full already: they were lost.
#[test]
fn mapped_pages_find_space_on_a_full_volume() {
    let script = r#"
"$xebec" mkfs -q image --size 300m
"$xebec" mount image mnt
cat > mapped.py << 'END'
import mmap, os
file = os.open("mnt/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 8 << 20)
pages = mmap.mmap(file, 8 << 20)
for at in range(0, 8 << 20, 8192):
    pages[at : at + 4096] = bytes([at // 8192 % 255 + 1]) * 4096
try:
    with open("mnt/filler", "wb", buffering=0) as filler:
        while filler.write(bytes(1 << 20)): pass
except OSError as error:
    assert error.errno == 28, error
pages.flush()
os.fsync(file)
END
python3 mapped.py 2> output || fail "pages were lost"
sum=$(sha256sum < mnt/mapped)
"$xebec" umount mnt
judge image "a full volume with mapped pages"
"$xebec" mount image mnt
[ "$sum" = "$(sha256sum < mnt/mapped)" ] || fail "pages are gone"
[ "$(tail -c 8192 mnt/mapped | head -c 1 | od -An -tu1 | tr -d ' ')" = 4 ] || fail "the last page"
"$xebec" umount mnt
"#;
    run("mapped_pages_find_space_on_a_full_volume", &["python3"], script);
}

/// The helper is called as by mount(8).
#[test]
fn mount_helper_works() {
    let script = r#"
"$xebec" mkfs -q image --size 100m
mkdir bin && ln -s "$xebec" bin/mount.xebec
bin/mount.xebec "$PWD/image" "$PWD/mnt" -o rw,noatime,x-systemd.automount
mountpoint -q mnt && findmnt -no FSTYPE mnt | grep -q fuse.xebec || fail "not mounted"
touch mnt/file
bin/mount.xebec "$PWD/image" "$PWD/mnt" -o "$(findmnt -no OPTIONS mnt),remount,ro" || fail "not remounted"
if touch mnt/file 2> output; then fail "a time is changed on a mount that is read only"; fi
findmnt -no OPTIONS mnt | grep -q noatime || fail "an option got lost: $(findmnt -no OPTIONS mnt)"
bin/mount.xebec "$PWD/image" "$PWD/mnt" -o rw,noatime,remount && touch mnt/file || fail "not writable again"
umount mnt
# Programs on a volume with mapped owners stay nosuid after a remount without that option.
bin/mount.xebec "$PWD/image" "$PWD/mnt" -o rw,idmap=user
bin/mount.xebec "$PWD/image" "$PWD/mnt" -o rw,noatime,remount
findmnt -no OPTIONS mnt | grep -q nosuid || fail "remounting gave set-user-ID programs their rights"
bin/mount.xebec "$PWD/image" "$PWD/mnt" -o rw,suid,remount
if findmnt -no OPTIONS mnt | grep -q nosuid; then fail "suid is not obeyed"; fi
umount mnt
code=0; bin/mount.xebec "$PWD/image" "$PWD/mnt" -o remount,ro 2> output || code=$?
[ $code = 32 ] && grep -q "$PWD/mnt" output || fail "exit code $code for what is not mounted: $(cat output)"
code=0; bin/mount.xebec "$PWD/nothing" "$PWD/mnt" -o rw 2> output || code=$?
[ $code = 32 ] || fail "exit code $code, not that of a mount that failed"
"#;
    run("mount_helper_works", &[], script);
}

/// The server used to unmount the last mount on its directory, even another file system mounted over it.
#[test]
fn file_system_mounted_over_it_stays() {
    let script = r#"
"$xebec" mkfs -q image --size 40m
"$xebec" mount --foreground image mnt 2> output & server=$!
until "$xebec" status mnt > /dev/null 2>&1; do sleep 0.05; done
touch mnt/ours
mount -t tmpfs over mnt && touch mnt/theirs
kill -TERM $server
until grep -q 'another file system is mounted' output; do sleep 0.05; done
[ -e mnt/theirs ] || fail "the other mount is gone"
umount mnt
[ -e mnt/ours ] || fail "the mount is gone with it"
kill -TERM $server && wait $server || fail "it did not end"
! mountpoint -q mnt || fail "it is still mounted"
judge image "unmounted"
"#;
    run("file_system_mounted_over_it_stays", &[], script);
}
