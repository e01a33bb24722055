//! Linux judges operations on whole volumes: after each step both versions of `xfs_repair -n` must find nothing, and
//! the kernel must mount the volume, show the same files, and be able to change it.

use std::path::Path;

use interop::built;

/// Options of `mkfs.xfs`, and the successive sizes of the volume.
const SHAPES: [(&str, &str); 7] = [
    ("", "75m 100m +33m 2g"),
    ("-m rmapbt=1,reflink=1", "71m 120m 300m"),
    ("-b size=1024 -m rmapbt=1", "90m 1g"),
    ("-m reflink=0,finobt=0,inobtcount=0,rmapbt=0,bigtime=0 -i nrext64=0", "100m 500m"),
    ("-d agcount=1", "+1m 200m"),
    ("-d agcount=3 -s size=4096", "75000k 1g"),
    ("-i size=2048 -n size=65536", "99m 400m"),
];

/// `$1` is the folder, `$2` the program, `$3` options of `mkfs.xfs`, `$4` the sizes.
const STEPS: &str = r#"
export TEST_DIR=x TEST_DEV=x QA_CHECK_FS=x
cd "$1"
xebec=$2 newer=$XEBEC_JUDGES/bin
repairs="xfs_repair $newer/xfs_repair"
mkdir -p mnt
fail() { echo "after $*" >&2; cat output >&2; exit 1; }
in_kernel() { mount -t xfs -o loop,nouuid "$1" mnt; (cd mnt; eval "$2"); umount mnt; }
files() { in_kernel "$1" 'find . -type f | LC_ALL=C sort | xargs -d "\n" sha256sum'; }
judge() {
    "$xebec" check "$1" > output 2>&1 || fail "$2 (xebec check)"
    for repair in $repairs; do
        $repair -n -f -o force_geometry "$1" > output 2>&1 || fail "$2 ($repair)"
    done
    files "$1" > shown
    diff files shown > output || fail "$2 (the kernel shows other files)"
}
run() { "$xebec" "$@" > output 2>&1 || fail "$*"; }

truncate -s 70M image
$newer/mkfs.xfs -q -f $3 image
in_kernel image 'cp -r /etc/s* . 2> /dev/null || true; head -c 3M /dev/urandom > big; mkdir many;
    for n in $(seq 500); do echo $n > many/$n; done'
files image > files
for size in $4; do
    run grow image $size
    judge image "growing to $size"
done
in_kernel image 'for n in $(seq 40); do mkdir d$n; head -c 1M /dev/zero > d$n/file; done; rm -r d*'
judge image "the kernel used the new space"
run shrink image 80m
judge image "shrinking"
run minimize image
judge image "minimizing"
run trim image
judge image "trimming"
run label image "my disk"
judge image "a label"
[ "$(xfs_db -r -c 'sb 1' -c 'p fname' image)" = 'fname = "my disk\000\000\000\000\000"' ] || fail "the copies' label"
run uuid image generate
judge image "a UUID"
run touch image /big
judge image "a change under another UUID"
run clone image copy
judge copy "a clone"
run uuid image restore
judge image "the old UUID"
run grow image 200m
for feature in bigtime nrext64 inobtcount reflink; do
    if "$xebec" features image --add $feature > output 2>&1; then
        judge image "$feature"
    elif ! grep -q 'log is too small\|needs finobt' output; then
        fail "adding $feature"
    fi
done
run features image --add exchange
# The older xfs_repair does not know this feature.
repairs=$newer/xfs_repair
judge image "exchange"
in_kernel image 'cp --reflink=auto big other; touch -d 2040-01-01 late; rm other late'
judge image "the kernel used the features"
"#;

#[test]
fn volume_is_sound_after_each_operation() {
    let ready = needs::mounting().and_then(|()| built::xebec());
    let Some(xebec) = needs::met(ready) else { return };
    for (options, sizes) in SHAPES {
        let folder = tempfile::tempdir().unwrap();
        let mut command = needs::script("-eu", STEPS, "life");
        let output = command
            .arg(folder.path())
            .arg(&xebec)
            .args([Path::new(options), Path::new(sizes)])
            .output()
            .unwrap();
        if !output.status.success() {
            panic!("{options}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
