//! Volumes on object storage, in a directory of the host: Linux judges pulled copies of them, after they were created,
//! cloned, and named by a snapshot while they were mounted; and images that Linux has written are pushed.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use interop::scripts;

/// Pulls the volume or snapshot $1 to the file $2 for Linux.
const IN_KERNEL: &str = r#"
store=file://$1/store
in_kernel() {
    rm -f "$2"
    run pull "$1" "$2"
    mount_by_linux "$2"
}
"#;

fn run(steps: &str) {
    let Some(()) = needs::met(scripts::ready(&["mkfs.xfs"])) else { return };
    scripts::run("stored", &format!("{IN_KERNEL}{steps}"), |_| {}).unwrap();
}

#[test]
fn linux_reads_a_volume_that_was_created() {
    run(r#"
mkdir source
cp -r /etc/s* source
head -c 30M /dev/urandom > source/big
for n in $(seq 300); do echo $n > source/file$n; done
run create $store/home --from source --free 50m
run check $store/home
in_kernel $store/home copy
diff -r --no-dereference source kernel > output || fail "the kernel shows other files"
umount kernel
tar c -C source . | "$xebec" create $store/minimal --from - --minimize > output 2>&1 || fail "create from a stream"
in_kernel $store/minimal copy
diff -r --no-dereference source kernel > output || fail "the kernel shows other files"
umount kernel
"#);
}

/// The snapshot has a dirty log, which Linux replays.
#[test]
fn linux_reads_a_snapshot_of_a_mounted_volume_and_its_clone() {
    run(r#"
run mkfs $store/home --size 300m
serve $store/home
cp -r /etc/s* mnt
for n in $(seq 200); do echo $n > mnt/file$n; done
# Linux passes no syncfs(2) to a FUSE server.
sync mnt/file*
rm mnt/file1
echo synced > mnt/synced
sync mnt/synced
run snapshot create $store/home@live
run clone $store/home@live $store/clone
echo later > mnt/later
rm mnt/file7*
sync mnt/later
in_kernel $store/home@live copy
[ "$(cat kernel/synced)" = synced ] || fail "what was synced is not in the snapshot"
[ "$(cat kernel/file77)" = 77 ] && [ ! -e kernel/file1 ] && [ ! -e kernel/later ] || fail "another state"
umount kernel
umount mnt
wait $server
in_kernel $store/home copy
[ "$(cat kernel/later)" = later ] && [ ! -e kernel/file77 ] || fail "another state of the volume"
umount kernel
# Both are mounted at the same time, as their UUIDs differ.
run pull $store/clone clone
mount -t xfs -o loop copy kernel
mount -t xfs -o loop clone other || fail "the kernel does not mount the clone beside its source"
[ "$(cat other/file77)" = 77 ] || fail "another state of the clone"
umount kernel other
repaired clone
"#);
}

#[test]
fn what_linux_has_written_is_pushed_and_pulled_bit_for_bit() {
    run(r#"
truncate -s 400m image
mkfs.xfs -q image
mount -t xfs -o loop image kernel
cp -r /etc/s* kernel
head -c 40M /dev/urandom > kernel/big
umount kernel
run push image $store/pushed
run check $store/pushed
run pull $store/pushed pulled
cmp image pulled || fail "other bytes"
allocated=$(stat -c %b pulled)
[ "$allocated" -le "$(stat -c %b image)" ] || fail "holes were filled"
mount -t xfs -o loop image kernel
rm kernel/big
echo more > kernel/more
umount kernel
run push --force image $store/pushed
run pull --force $store/pushed pulled
cmp image pulled || fail "other bytes after a second push"
in_kernel $store/pushed copy
[ "$(cat kernel/more)" = more ] || fail "another state"
umount kernel
"#);
}
