//! Common programs on a mount.

use crate::scripts::run;

/// A repository of a thousand files: commits, branches, merges, clones, and verification.
const GIT: &str = r#"
export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
use_git() {
    git init -q -b main "$1/repository"
    cd "$1/repository"
    for d in $(seq 20); do mkdir -p src/d$d; for n in $(seq 50); do echo "file $d $n" > src/d$d/f$n.txt; done; done
    git add -A && git commit -q -m first
    git checkout -q -b side && git mv src/d1 src/moved && git rm -q -r src/d2 && git commit -q -m second
    git checkout -q main && echo more >> src/d3/f1.txt && git commit -q -a -m third
    git merge -q side -m merged
    [ -z "$(git status --porcelain)" ] || fail "git status is not clean"
    git gc -q && git fsck --strict
    git clone -q . ../clone && cd ../clone && git fsck && [ -z "$(git status --porcelain)" ]
    cd ../..
}
"#;

#[test]
fn git_works_as_root() {
    let script = r#"
"$xebec" mkfs -q image --size 400m
"$xebec" mount image mnt
(use_git mnt)
list_tree mnt > wanted
"$xebec" umount mnt
judge image "after git"
compare_with_kernel image wanted
"#;
    run("git_works_as_root", &["git"], &[GIT, script].concat());
}

/// With fusermount3, as the user nobody, to whom root's files in the volume are mapped.
#[test]
fn git_works_as_an_ordinary_user() {
    let script = r#"
everybody && chmod a+rw /dev/fuse
mkdir home && chown 65534:65534 home && cp "$xebec" home/xebec && chmod 755 home/xebec
cd home
export -f use_git fail && export HOME=$PWD
su_run() { setpriv --reuid 65534 --regid 65534 --clear-groups bash -euo pipefail -c "$1"; }
su_run '
    ./xebec mkfs -q image --size 400m
    mkdir mnt
    ./xebec mount -o idmap=user image mnt
    (use_git mnt)
    find mnt ! -uid 65534 | grep -q . && fail "a file does not belong to the user"
    findmnt -no OPTIONS mnt | grep -q nosuid,nodev || fail "the mount is not nosuid,nodev"
    ./xebec umount mnt'
cd ..
mv home/image image
judge image "after git"
mkdir -p judged && mount -t xfs -o loop,nouuid,ro image judged
[ -z "$(find judged ! -uid 0)" ] || fail "a file in the volume does not belong to root"
umount judged
"#;
    run("git_works_as_an_ordinary_user", &["git", "setpriv"], &[GIT, script].concat());
}

/// A volume formatted by an ordinary user belonged to root: the user could mount it, but not write to it.
#[test]
fn new_volume_belongs_to_the_mounting_user() {
    let script = r#"
everybody && chmod a+rw /dev/fuse
mkdir home roots && chown 65534:65534 home && cp "$xebec" home/xebec && chmod 755 home/xebec
cd home
su_run() { setpriv --reuid "$1" --regid "$1" --clear-groups env HOME="$PWD" bash -euo pipefail -c "$2"; }
owner() { ./xebec stat --json "$1" / | grep -c '"[ug]id": 65534' || true; }
su_run 65534 '
    mkdir mnt source
    echo hello > source/file
    ./xebec mkfs -q image --size 300m
    ./xebec mkfs -q other --size 300m
    ./xebec mkfs -q third --size 300m --root-owner 1234:5678
    ./xebec mkfs -q fourth --size 300m
    ./xebec create full --from source
    for image in image full; do
        ./xebec mount $image mnt
        echo more > mnt/new
        mkdir mnt/d && mv mnt/new mnt/d/new && [ "$(cat mnt/d/new)" = more ]
        ./xebec umount mnt
    done
    ./xebec mount -o ro other mnt && ./xebec umount mnt
    # A refused mount changes nothing: the directory belongs to another user.
    if ./xebec mount other ../roots 2> /dev/null; then exit 1; fi
    ./xebec stat --json other / | grep -q '"'"'"uid": 65534'"'"' && exit 1
    ./xebec mount -o idmap=user other mnt && touch mnt/x && ./xebec umount mnt
    ./xebec mount third mnt
    if touch mnt/x 2> /dev/null; then exit 1; fi
    ./xebec umount mnt
    # Created from an archive without the root directory, with one timestamp.
    tar c -C source file | SOURCE_DATE_EPOCH=1700000000 ./xebec create fifth --from -
    ./xebec mount fifth mnt && if touch mnt/x 2> /dev/null; then exit 1; fi
    ./xebec umount mnt
    # The volume was used before.
    ./xebec touch fourth /x && ./xebec rm fourth /x
    ./xebec mount fourth mnt && if touch mnt/x 2> /dev/null; then exit 1; fi
    ./xebec umount mnt'
[ "$(owner image) $(owner full) $(owner other) $(owner third) $(owner fourth) $(owner fifth)" = "2 2 0 0 0 0" ]
[ "$(./xebec stat third / | grep -c '1234/.*5678/')" = 1 ]
cd ..
for image in image full other third fourth fifth; do judge home/$image $image; done
mkdir judged && mount -t xfs -o loop,nouuid home/image judged
[ "$(stat -c %u:%g:%a judged)" = 65534:65534:755 ]
umount judged
"#;
    run("new_volume_belongs_to_the_mounting_user", &["setpriv"], script);
}

#[test]
fn copies_keep_all_metadata() {
    let script = r#"
"$xebec" mkfs -q image --size 600m
"$xebec" mount image mnt
mkdir source && cp -a /etc /usr/share/doc/b* source/ 2> /dev/null || true
ln source/etc/passwd source/hard; ln -s /nowhere source/soft; mkfifo source/pipe; mknod source/device c 1 3
truncate -s 300M source/sparse; echo end >> source/sparse
setfattr -n user.colour -v blue source/hard; setfacl -m u:7:r,g:8:w source/etc/passwd; setfacl -d -m u:9:rwx source/etc
setcap cap_net_raw+ep source/etc/group
xattrs() { (cd "$1" && getfattr -R -h -d -m - . 2> /dev/null | LC_ALL=C sort
    find . ! -type l -print0 | LC_ALL=C sort -z | xargs -0 getfacl -n -p 2> /dev/null); }
list_tree source > wanted && xattrs source > wanted.x
tar='tar c --xattrs --acls -S -C source . | tar x --xattrs --xattrs-include=* --acls -C mnt/copy'
for way in 'cp -a source/. mnt/copy' 'rsync -aHAXS source/ mnt/copy/' "$tar"; do
    mkdir mnt/copy
    eval "$way"
    list_tree mnt/copy > found && diff wanted found > output || fail "$way: different files"
    xattrs mnt/copy > found && diff wanted.x found > output || fail "$way: different attributes"
    [ "$(stat -c %b mnt/copy/sparse)" -lt 100 ] || fail "$way: a hole was filled"
    if [ "${way%% *}" != tar ]; then rm -r mnt/copy; fi
done
"$xebec" umount mnt
judge image "after copying"
"$xebec" mount image mnt
list_tree mnt/copy > found && diff wanted found > output || fail "different files after a remount"
"$xebec" umount mnt
"#;
    run("copies_keep_all_metadata", &["rsync", "setfattr", "setfacl", "setcap"], script);
}

#[test]
fn programs_are_built() {
    let script = r#"
"$xebec" mkfs -q image --size 400m
"$xebec" mount image mnt
mkdir mnt/c && cd mnt/c
for n in $(seq 12); do echo "int f$n(int x) { return x + $n; }" > f$n.c; done
{ for n in $(seq 12); do echo "int f$n(int);"; done; echo 'int main(void) { int x = 0;'
  for n in $(seq 12); do echo "x = f$n(x);"; done; echo 'return x == 78 ? 0 : 1; }'; } > main.c
printf 'OBJECTS := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $^\n' > Makefile
make -s -j2 && ./program && touch f3.c && make -s && ./program
[ "$(make)" = "make: 'program' is up to date." ] || fail "make rebuilds existing files"
cd .. && mkdir -p hello/src && cd hello
# A separate workspace, independent of parent folders.
printf '[package]\nname = "hello"\nedition = "2021"\n[workspace]\n' > Cargo.toml
echo 'fn main() { println!("hello"); }' > src/main.rs
CARGO_TARGET_DIR=target cargo build -q --offline && [ "$(./target/debug/hello)" = hello ]
cd ../..
list_tree mnt > wanted
"$xebec" umount mnt
judge image "after building"
compare_with_kernel image wanted
"#;
    run("programs_are_built", &["make", "cc", "cargo"], script);
}

#[test]
fn fio_and_dbench_verify_contents() {
    let script = r#"
"$xebec" mkfs -q image --size 500m
"$xebec" mount image mnt
fio --directory=mnt --name=verified --rw=randrw --bsrange=512-64k --size=24m --numjobs=3 --verify=crc32c \
    --ioengine=psync --group_reporting --minimal > output 2>&1 || fail fio
fio --directory=mnt --name=mapped --rw=randwrite --bs=4k --size=16m --verify=crc32c --ioengine=mmap --fsync=64 \
    --minimal > output 2>&1 || fail "fio with mmap"
fio --directory=mnt --name=direct --rw=randwrite --bs=4k --size=16m --verify=crc32c --direct=1 --ioengine=libaio \
    --iodepth=8 --minimal > output 2>&1 || fail "fio with direct I/O"
dbench -q -t 3 -D mnt 4 > output 2>&1 || dbench -t 3 -D mnt 4 > output 2>&1 || fail dbench
"$xebec" status --json mnt | grep -q '"name":"fsync"' || fail "no fsync was counted"
"$xebec" umount mnt
judge image "after fio and dbench"
"#;
    run("fio_and_dbench_verify_contents", &["fio", "dbench"], script);
}
