//! After `xebec sync` an image must match its source tree, as shown by the kernel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use read::manifest::{PathKey, Record};

use super::{Scratch, portable};

/// Mounts a copy of the image `$1`, creates the image `$4` from it, and then changes the tree and syncs in turn. Writes
/// the manifests on kernel mounts after each turn to `$4.N.source` and `$4.N.made`.
const SYNC: &str = r#"
image=$1; source=$2; mount=$3; made=$4; xebec=$5; interop=$6; repair=$7; shift 7
cp --sparse=always "$image" "$made.source"
mount -t xfs -o loop,noatime,nouuid "$made.source" "$source"
trap 'umount "$source"' EXIT
"$xebec" create "$made" --from "$source" --free 40% --quiet "$@"
turn=0
follow() {
    "$xebec" sync "$source" "$made" --json > "$made.$turn.json"
    "$xebec" sync "$source" "$made" --json > "$made.$turn.again"
    "$repair" -n -f -o force_geometry "$made" > "$made.repair" 2>&1 || { cat "$made.repair" >&2; exit 1; }
    "$xebec" check --quiet "$made"
    mount -t xfs -o loop,ro,noatime,nouuid "$made" "$mount"
    "$interop" manifest "$mount" > "$made.$turn.made"
    umount "$mount"
    "$interop" manifest "$source" > "$made.$turn.source"
    turn=$((turn + 1))
}
cd "$source"
follow
mkdir -p new/deep; echo new > new/file; ln new/file new/deep/again; ln -s file new/link; mkfifo new/pipe
mknod new/null c 1 3; mknod new/disk b 259 7; truncate -s 1t new/sparse; echo end >> new/sparse
setfattr -n user.large -v "$(head -c 40000 /dev/zero | tr '\0' x)" new/file
setfattr -n trusted.t -v 1 new/deep; setfacl -m u:7:rwx,m::rx new/file; setfacl -d -m g:9:rx new/deep
chown 12:34 new/file; chmod 6751 new/file; touch -hd '1999-01-01 01:02:03.123456789' new/link
follow
echo more >> new/file; touch new/deep/in; echo x > new/deep/other; setfacl -x u:7 new/file
setfattr -x trusted.t new/deep; chmod 2770 new/deep; chown 5:6 new/deep; mkdir new/deep/below
xfs_io -c 'chproj 77' new/deep/other
touch -d '2004-05-06 07:08:09.000000001' new/deep/in; rm new/null; mkdir new/null; echo y > new/null/y
follow
mv new/deep moved; rm new/link; echo file > new/link; rm -r new/null; ln -s nowhere new/null
ln -f moved/other new/file; xfs_io -c 'chattr +d' new/file
head -c 9000000 /dev/urandom > new/random; truncate -s 8m new/sparse
follow
printf same > new/link; touch -r moved/in new/link; rm -rf moved; chmod 0 new/random
xfs_io -r -c 'chattr +i' new/file; mkdir locked; echo in > locked/in; xfs_io -r -c 'chattr +a' locked/in
xfs_io -r -c 'chattr +i' locked; xfs_io -r -c 'chattr +a' new/random
follow
xfs_io -r -c 'chattr -i' new/file; echo more >> new/file; ln new/file new/one; xfs_io -r -c 'chattr +i' new/file
xfs_io -r -c 'chattr -a' new/random; ln new/random new/two; xfs_io -r -c 'chattr +a' new/random
xfs_io -r -c 'chattr -i' locked; xfs_io -r -c 'chattr -a' locked/in; rm -r locked
follow
# Immutable files remain in the source.
find . -mindepth 1 -maxdepth 1 ! -name new -exec rm -rf {} + 2>&1 || true
follow
rm -rf ./* || true; follow
cd /
"#;

/// Reads a manifest. Inode numbers are replaced by the first line of each file, to compare hard links.
fn records(path: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut firsts: HashMap<u64, (PathKey, u64)> = HashMap::new();
    let lines = text.lines().enumerate().map(|(number, line)| {
        let ino = Record::from_line(line).unwrap().ino;
        let mut record = portable(line);
        record.ino = firsts.entry(ino).or_insert((record.path.clone(), number as u64)).1;
        // Access times change when the source is read.
        record.atime = String::new();
        record
    });
    lines.collect()
}

#[test]
fn synced_image_matches_its_source_directory() {
    let Some(scratch) = needs::met(
        Scratch::new().and_then(|scratch| needs::tools(&["setfattr", "setfacl"]).map(|()| scratch)),
    ) else {
        return;
    };
    std::fs::create_dir(scratch.made("src")).unwrap();
    let layouts: [&[&str]; 3] = [&[], &["-b", "size=1024", "-m", "rmapbt=0"], &["-n", "parent=1"]];
    for (number, layout) in layouts.into_iter().enumerate() {
        let made = scratch.made(&format!("synced {number}.xfs"));
        let mut command = needs::script("-euo pipefail", SYNC, "sync");
        command.arg(scratch.image.with_extension("xfs")).arg(scratch.made("src")).arg(scratch.made("mnt"));
        let repair = needs::judges().join("xfs_repair");
        command.arg(&made).arg(&scratch.xebec).arg(env!("CARGO_BIN_EXE_interop")).arg(repair);
        let output = command.args(layout).output().unwrap();
        assert!(output.status.success(), "{layout:?}: {}", String::from_utf8_lossy(&output.stderr));
        for turn in 0..8 {
            let part = |of: &str| PathBuf::from(format!("{}.{turn}.{of}", made.display()));
            let (made, source) = (records(&part("made")), records(&part("source")));
            assert_eq!(made.len(), source.len(), "{layout:?}, turn {turn}: number of files");
            for (made, source) in made.iter().zip(&source) {
                assert_eq!(made, source, "{layout:?}, turn {turn}");
            }
            let again = std::fs::read_to_string(part("again")).unwrap();
            let again: serde_json::Value = serde_json::from_str(&again).unwrap();
            let changes =
                ["created", "replaced", "amended", "removed", "bytes"].map(|key| again[key].as_u64());
            assert_eq!(changes, [Some(0); 5], "{layout:?}, turn {turn}: {again}");
        }
    }
}
