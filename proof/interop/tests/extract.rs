//! What `xebec extract` makes of a volume on a mounted one is what the kernel shows of the first.
#![expect(clippy::unwrap_used, reason = "a test says what it expects by panicking, in its helpers too")]

use std::path::{Path, PathBuf};

use interop::built;
use read::manifest::{Kind, Record};

/// Makes a volume `$1`, mounts it at `$2` in a mount namespace of its own, extracts the image `$3` there with `$4`, and
/// prints what the kernel shows of it then, with `$5`.
const EXTRACT: &str = r#"
truncate -s 1G "$1"
mkfs.xfs -q "$1"
mount -t xfs -o loop,noatime "$1" "$2"
trap 'umount "$2"' EXIT
"$4" extract "$3" --to "$2" --quiet
"$5" manifest "$2"
"#;

/// One image of the corpus, with every kind of file, and the program.
fn found() -> Result<(PathBuf, PathBuf), String> {
    needs::mounting()?;
    Ok((
        built::default_image(Path::new(env!("CARGO_TARGET_TMPDIR")), env!("CARGO_BIN_EXE_interop"))?,
        built::xebec()?,
    ))
}

/// A record without what belongs to the volume: numbers of inodes, times that nobody can set, sizes of directories, and
/// flags that tell an allocator where to put a file or that only say how a file is stored.
fn portable(line: &str) -> Record {
    /// Immutable, append, sync, noatime, nodump, projinherit, nosymlinks, nodefrag.
    const KEPT: u32 = 0x26f8;
    let mut record = Record::from_line(line).unwrap();
    (record.ino, record.ctime, record.btime) = (0, String::new(), String::new());
    record.xflags = record.xflags.map(|flags| flags & KEPT);
    if record.kind == Kind::Dir {
        // Reading a directory, which the kernel's side has done to both, may change its time.
        (record.size, record.atime) = (0, String::new());
    }
    record
}

#[test]
fn an_extracted_tree_is_the_kernels() {
    let Some((image, xebec)) = needs::met(found()) else { return };
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mount = scratch.path().join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let mut command = needs::script("-eu", EXTRACT, "extract");
    command.arg(scratch.path().join("made.xfs")).arg(&mount).arg(image.with_extension("xfs"));
    let output = command.arg(&xebec).arg(env!("CARGO_BIN_EXE_interop")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (ours, kernels) = (
        String::from_utf8(output.stdout).unwrap(),
        std::fs::read_to_string(image.with_extension("manifest")).unwrap(),
    );
    let (ours, kernels): (Vec<_>, Vec<_>) =
        (ours.lines().map(portable).collect(), kernels.lines().map(portable).collect());
    assert_eq!(ours.len(), kernels.len(), "as many files");
    assert!(kernels.iter().any(|record| record.projid.is_some_and(|project| project != 0)));
    assert!(kernels.iter().any(|record| record.xflags.is_some_and(|flags| flags & 0x8 != 0)));
    for (ours, kernels) in ours.iter().zip(&kernels) {
        assert_eq!(ours, kernels);
    }
}
