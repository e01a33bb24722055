//! Volumes formatted with `--grow-to`: `xfs_repair -n` must find nothing, and the kernel must mount and grow them.

use std::path::Path;

use crate::XEBEC;

/// Initial size, later size, options.
const CASES: [(&str, &str, &str); 8] = [
    ("32m", "1g", "-m rmapbt=0"),
    ("100m", "4g", ""),
    ("300m", "1g", ""),
    ("1g", "3g", "-d su=64k,sw=5"),
    ("1g", "64g", "-m rmapbt=0,reflink=0"),
    ("2g", "20g", "-d su=256k,sw=2 -s size=4096"),
    ("5g", "12g", "-b size=1024"),
    ("300g", "1t", "-i size=1024"),
];

/// `$1` is the folder, `$2` the program, `$3` and `$4` are the sizes, `$5` options.
const STEPS: &str = r#"
cd "$1"
xebec=$2
mkdir mnt
judge() {
    for repair in xfs_repair "$XEBEC_JUDGES/bin/xfs_repair"; do
        $repair -n -f image > output 2>&1 || { echo "$1: $repair" >&2; cat output >&2; exit 1; }
    done
    "$xebec" check image >&2
}
agsize() { sed -n 's/.*agsize=\([0-9]*\) blks.*/\1/p'; }
"$xebec" mkfs image --size "$3" --grow-to "$4" $5 > made
judge made
cp --sparse=always image second
mount -t xfs -o loop,nouuid image mnt
mkdir mnt/d; head -c 4M /dev/urandom > mnt/d/file; sum=$(sha256sum < mnt/d/file)
umount mnt
judge used
truncate -s "$4" image
mount -t xfs -o loop,nouuid image mnt
xfs_growfs mnt > grown
[ "$(sha256sum < mnt/d/file)" = "$sum" ]
mkdir mnt/e; head -c 1M /dev/zero > mnt/e/file
umount mnt
judge "grown by the kernel"
[ "$(agsize < made)" = "$(agsize < grown)" ]
"$xebec" info --json image > info.kernel
mv second image
"$xebec" grow image "$4" >&2
judge grown
"$xebec" info --json image > info.own
"$xebec" mkfs -N --json later --size "$4" $5 > info.later
for info in info.kernel info.own info.later; do
    tr ',{' '\n\n' < $info | grep '"ag_blocks"\|"ag_count"\|"blocks"' | tr '\n' ' '; echo
done
"#;

#[test]
fn linux_mounts_and_grows_volumes_formatted_for_growth() {
    let Some(xebec) = needs::met(needs::mounting().and_then(|()| XEBEC.clone())) else { return };
    for (size, grown, options) in CASES {
        let folder = tempfile::tempdir().unwrap();
        let mut steps = needs::script("-eu", STEPS, "grow");
        let steps = steps.arg(folder.path()).arg(&xebec).args([size, grown, options].map(Path::new));
        let output = steps.output().unwrap();
        let stderr = crate::text(&output.stderr);
        assert!(output.status.success(), "{size} to {grown} {options}: {stderr}");
        let shown = crate::text(&output.stdout);
        let [kernel, own, later] = shown.lines().collect::<Vec<_>>()[..] else { panic!("{shown}") };
        assert_eq!(kernel, own, "{size} to {grown} {options}");
        // The initial volume is smaller than an AG of the later one in the other cases.
        if !["32m", "100m"].contains(&size) && !["64g", "20g"].contains(&grown) {
            assert_eq!(own, later, "{size} to {grown} {options}");
        }
    }
}
