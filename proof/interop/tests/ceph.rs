//! Volumes on images of Ceph: Linux judges exported copies of them, after ordinary use, after the client was killed,
//! and after another client took the volume over.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use interop::scripts;
use needs::Ceph;

/// Copies the image or snapshot $1 for Linux.
const IN_KERNEL: &str = r#"
in_kernel() {
    rm -f copy
    rbd export --no-progress "$1" copy
    mount_by_linux copy
}
"#;

fn run(steps: &str) {
    let ready = scripts::ready(&[]).and_then(|()| Ceph::shared());
    let Some(ceph) = needs::met(ready) else { return };
    scripts::run("ceph", &format!("{IN_KERNEL}{steps}"), |script| {
        script.env("CEPH_CONF", ceph.configuration()).env_remove("CEPH_ARGS");
    })
    .unwrap();
}

/// Runs steps on a new volume in the image `name`, with its URL in `$url`.
fn on_volume(name: &str, steps: &str) {
    run(&format!("url=rbd://rbd/{name}\nrun mkfs $url --size 200m\n{steps}"));
}

#[test]
fn linux_reads_a_volume_that_was_exported() {
    run(r#"
url=rbd://rbd/exported
refused 'give its size with --size' mkfs $url
run mkfs $url --size 200m -L ceph
refused 'use -f to overwrite' mkfs $url
refused 'this names a snapshot' mkfs rbd://rbd/partial@now --size 200m
if rbd info rbd/partial > output 2>&1; then fail "the image of a snapshot was created"; fi
mkdir source
cp -r /etc/s* source
head -c 30M /dev/urandom > source/big
for n in $(seq 300); do echo $n > source/file$n; done
run sync source $url
run check $url
in_kernel rbd/exported
diff -r --no-dereference source kernel > output || fail "the kernel shows other files"
umount kernel
run rm -r $url:/big
run trim $url
[ "$("$xebec" cat $url:/file7)" = 7 ] || fail cat
mkdir into
echo new > into/file
run cp -r into $url:/
run cp $url:/into/file rbd://rbd/%65xported:/into/within
run cp $url into/file /into/first
for name in file within first; do [ "$("$xebec" cat $url:/into/$name)" = new ] || fail "cp: $name"; done
refused 'this names no path in the volume' cp $url:/file7 rbd://rbd/other
run rm -r $url:/into
mkdir copied
run cp -r $url:/. copied
rm source/big
diff -r --no-dereference source copied > output || fail "cp copied other files"
rbd resize --no-progress rbd/exported --size 500M
run grow $url
in_kernel rbd/exported
diff -r --no-dereference source kernel > output || fail "after growing, the kernel shows other files"
umount kernel
run mkfs -f $url
"#);
}

/// A snapshot is read while the volume is mounted, and a clone of it becomes another volume.
#[test]
fn snapshots_and_clones_are_volumes() {
    on_volume(
        "live",
        r#"
serve $url
for n in $(seq 50); do echo $n > mnt/file$n; done
sync mnt/*
until [ -e stop ]; do
    for n in $(seq 200); do echo $RANDOM > mnt/churn$n; done
    rm -f mnt/churn*
    touch churned
done &
churn=$!
until [ -e churned ]; do kill -0 $churn || fail "the churn has ended"; sleep 0.1; done
rbd snap create --no-progress rbd/live@now
for n in 1 50; do [ "$("$xebec" -q cat $url@now:/file$n)" = $n ] || fail "file$n"; done
run check -q $url@now
refused 'rbd://rbd/live@now: cannot open' touch $url@now:/file
# The server's watch of the image ends, and begins again, whenever it stands still for three seconds.
until "$xebec" ls $url 2>&1 > listed | grep -q 'has it open for changes'; do
    kill -0 $server || fail "the server has ended"
    sleep 0.1
done
rbd clone --rbd-default-clone-format 2 rbd/live@now rbd/cloned
run uuid rbd://rbd/cloned generate
run write rbd://rbd/cloned:/mine < /dev/null
# Not killed: a program that it has started would keep the mount busy.
touch stop
wait $churn || fail "changes"
[ "$(cat mnt/file7)" = 7 ] || fail "the volume"
umount mnt
wait $server || fail "the server"
in_kernel rbd/cloned
[ "$(cat kernel/file7)" = 7 ] && [ -e kernel/mine ] || fail "the clone"
umount kernel
in_kernel rbd/live@now
umount kernel
in_kernel rbd/live
[ ! -e kernel/mine ] || fail "the volume has a change of its clone"
umount kernel
"#,
    );
}

/// As a power cut: what was synced is there, the log is replayed, and Linux agrees.
#[test]
fn a_killed_client_loses_nothing_that_was_synced() {
    on_volume(
        "cut",
        r#"
for round in 1 2 3; do
    serve $url
    (n=0; while n=$((n + 1)); do
        echo "$round $n" > mnt/synced$round.$n && sync mnt/synced$round.$n && echo $n >> done$round || exit 0
        head -c 300000 /dev/urandom > mnt/unsynced$((n % 40)); rm -f mnt/unsynced$((n % 13))
    done) 2> /dev/null &
    writer=$!
    # Some seconds of changes, of which at least some files are synced, however slow the machine is.
    sleep 3
    until [ "$(cat done$round 2> /dev/null | wc -l)" -gt 3 ]; do
        kill -0 $writer || fail "the writer has ended"
        sleep 0.1
    done
    kill -9 $server
    wait $server 2> /dev/null || true
    # The mount fails now. Without it, the files would go to the directory.
    wait $writer || true
    umount -l mnt
    # Linux replays the log, and Xebec does.
    in_kernel rbd/cut
    for n in $(cat done$round); do
        [ "$(cat kernel/synced$round.$n)" = "$round $n" ] || fail "round $round: the kernel lacks synced$round.$n"
    done
    umount kernel
    run replay --wait 60 $url
    run check $url
    mkdir shown$round
    run cp -r $url:/. shown$round
    for n in $(cat done$round); do
        [ "$(cat shown$round/synced$round.$n)" = "$round $n" ] || fail "round $round: synced$round.$n is lost"
    done
done
in_kernel rbd/cut
umount kernel
"#,
    );
}

#[test]
fn a_volume_that_was_taken_over_is_not_changed_by_its_old_client() {
    on_volume(
        "taken",
        r#"
serve $url
echo kept > mnt/kept
sync mnt/*
refused 'has it open for changes' touch $url:/other
refused '--take-over' touch $url:/other
echo unsynced > mnt/unsynced
run touch --take-over $url:/mine
echo late > mnt/late 2> /dev/null || true
if sync mnt/late 2> /dev/null; then fail "the old client's sync succeeds"; fi
umount mnt || umount -l mnt
wait $server && fail "the server does not report its failure" || true
grep -q 'another client took the image over' server || { cat server >&2; fail "the server does not say why"; }
run check $url
[ "$("$xebec" cat $url:/kept)" = kept ] || fail kept
run stat $url:/mine
in_kernel rbd/taken
[ -e kernel/mine ] && [ "$(cat kernel/kept)" = kept ] && [ ! -e kernel/late ] || fail "the kernel"
umount kernel
"#,
    );
}
