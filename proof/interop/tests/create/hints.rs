//! Extent size hints of a source must be copied by `create` and `sync`.

use std::path::Path;

use interop::built;

/// Creates a source on a volume in the folder `$1`, an image of it with the program `$2`, and two more images with
/// block sizes or features that exclude some hints; changes the source and syncs. Writes the hints on kernel mounts to
/// `N.source` and `N.made`.
const HINTS: &str = r#"
cd "$1"; xebec=$2
mkdir src mnt
truncate -s 512M source.xfs
mkfs.xfs -q source.xfs
mount -t xfs -o loop,nouuid source.xfs src
folder=$1; trap 'umount "$folder/src"' EXIT
show() {
    (cd "$1"; find . -type f -o -type d | sort | while read -r file; do
        xfs_io -r -c extsize -c cowextsize -c lsattr "$file"
    done) | sed 's|[X-] | |' > "$2" # ignore the attribute fork flag
}
turn() {
    show src "$2.source"
    xfs_repair -n -f "$1" > "$2.repair" 2>&1 || { cat "$2.repair" >&2; exit 1; }
    "$xebec" check --quiet "$1"
    mount -t xfs -o loop,ro,nouuid "$1" mnt
    show mnt "$2.made"
    cmp src/file mnt/file
    umount mnt
}
mkdir src/dir src/plain
xfs_io -c 'extsize 64k' -c 'cowextsize 128k' src/dir
echo in > src/dir/inherits; mkdir src/dir/below
xfs_io -f -c 'extsize 1m' -c 'pwrite -q 0 300000' -c 'pwrite -q 5m 10' src/file
xfs_io -f -c 'cowextsize 256k' -c 'pwrite -q 0 5' src/copied
xfs_io -f -c 'extsize 8k' src/empty; xfs_io -f -c 'extsize 4k' -c 'pwrite -q 0 5' src/small
xfs_io -f -c 'pwrite -q 0 5' src/plain/file
"$xebec" create made.xfs --from src --free 128m --json > 0.json
turn made.xfs 0
xfs_io -c 'extsize 128k' -c 'cowextsize 0' src/dir; xfs_io -c 'extsize 32k' src/plain; xfs_io -c 'extsize 0' src/empty
xfs_io -f -c 'extsize 16k' -c 'pwrite -q 0 100000' src/plain/new; xfs_io -c 'cowextsize 64k' src/file
"$xebec" sync src made.xfs --json > 1.json
turn made.xfs 1
"$xebec" sync src made.xfs --json > 2.json
turn made.xfs 2
"$xebec" create other.xfs --from src --free 128m -m reflink=0 --json > 3.json
"$xebec" sync src other.xfs --json > 4.json
"$xebec" create other.xfs --force --from src --free 256m -b size=16384 --json > 5.json
"$xebec" check --quiet other.xfs
"#;

/// `create` and `sync` dropped all hints silently.
#[test]
fn extent_size_hints_are_copied_or_reported() {
    let Some(xebec) = needs::met(needs::mounting().and_then(|()| built::xebec())) else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = needs::script("-euo pipefail", HINTS, "hints");
    let output = command.arg(folder.path()).arg(xebec).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let part = |name: &str| std::fs::read_to_string(Path::new(folder.path()).join(name)).unwrap();
    let summary =
        |turn: u32| -> serde_json::Value { serde_json::from_str(&part(&format!("{turn}.json"))).unwrap() };
    for turn in 0..3 {
        let source = part(&format!("{turn}.source"));
        assert_eq!(part(&format!("{turn}.made")), source, "turn {turn}");
        assert_eq!(summary(turn)["not_kept"], serde_json::json!({}), "turn {turn}");
        assert_eq!(source.matches("[1048576] ").count(), 1, "{source}");
    }
    assert_eq!(summary(2)["amended"], 0);
    // Without reflink, CoW extent size hints are lost: of two files, and of two that inherited them.
    for turn in [3, 4] {
        assert_eq!(summary(turn)["not_kept"], serde_json::json!({ "extent size hints": 4 }), "turn {turn}");
    }
    // A hint must be a multiple of the block size; 4 KiB is not.
    assert_eq!(summary(5)["not_kept"], serde_json::json!({ "extent size hints": 1 }));
}
