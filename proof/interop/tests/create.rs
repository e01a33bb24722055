//! What `xebec create` makes of a tree is the tree, as the kernel shows both.
//!
//! | part | judges |
//! |---|---|
//! | a directory | every kind of file that the corpus has, over some layouts |
//! | an archive | the same by way of `tar`, as far as tar keeps it |
//! | [`hints`] | that hints for the size of extents are taken over |
//! | [`sync`] | that an image which follows a tree stays equal to it |
//! | bytes | that threads and time make no difference where none was asked for |
#![expect(clippy::unwrap_used, reason = "a test says what it expects by panicking, in its helpers too")]

#[path = "create/hints.rs"]
mod hints;
#[path = "create/sync.rs"]
mod sync;

use std::path::{Path, PathBuf};

use interop::{built, compare};
use read::manifest::{Kind, Record};

/// Mounts the image `$1` at `$2` in a mount namespace of its own, makes `$3` of it with `$4` and the words behind, and
/// prints what the kernel shows of that, with `$5`. `xfs_repair` of `$6` has nothing to say of it.
const CREATE: &str = r#"
image=$1; mount=$2; made=$3; xebec=$4; interop=$5; repair=$6; how=$7; shift 7
mount -t xfs -o loop,ro,noatime,norecovery,nouuid "$image" "$mount"
case $how in
directory) "$xebec" create "$made" --from "$mount" --quiet "$@" ;;
archive)
    tar --format=posix --xattrs --xattrs-include='*' --sparse -C "$mount" -cf - . 2>/dev/null |
        zstd -q -1 | "$xebec" create "$made" --from - --quiet "$@" ;;
esac
umount "$mount"
"$repair" -n -f -o force_geometry "$made" > "$made.repair" 2>&1 || { cat "$made.repair" >&2; exit 1; }
"$xebec" check --quiet "$made"
sha256sum < "$made" > "$made.sum"
mount -t xfs -o loop,noatime "$made" "$mount"
trap 'umount "$mount"' EXIT
"$interop" manifest "$mount"
"#;

/// One image of the corpus, with every kind of file, and the program.
fn found() -> Result<(PathBuf, PathBuf), String> {
    needs::mounting().and_then(|()| needs::tools(&["tar", "zstd"]))?;
    Ok((
        built::default_image(Path::new(env!("CARGO_TARGET_TMPDIR")), env!("CARGO_BIN_EXE_interop"))?,
        built::xebec()?,
    ))
}

fn portable(line: &str) -> Record {
    compare::portable(line).unwrap()
}

/// What tar does not keep.
fn archived(mut record: Record) -> Record {
    record.atime = String::new();
    (record.projid, record.xflags) = (None, None);
    if matches!(record.kind, Kind::Char | Kind::Block | Kind::Fifo) {
        record.nlink = 1;
    }
    record
}

struct Scratch {
    folder: tempfile::TempDir,
    image: PathBuf,
    xebec: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self, String> {
        let (image, xebec) = found()?;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(folder.path().join("mnt")).unwrap();
        Ok(Self { folder, image, xebec })
    }

    fn made(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the kernel shows of the image that was made.
    fn create(&self, how: &str, name: &str, words: &[&str]) -> Vec<Record> {
        let mut command = needs::script("-euo pipefail", CREATE, "create");
        command.arg(self.image.with_extension("xfs")).arg(self.made("mnt")).arg(self.made(name));
        let repair = needs::judges().join("xfs_repair");
        command.arg(&self.xebec).arg(env!("CARGO_BIN_EXE_interop")).arg(repair).arg(how);
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{how} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(portable).collect()
    }

    /// What the kernel shows of the source.
    fn source(&self) -> Vec<Record> {
        let manifest = std::fs::read_to_string(self.image.with_extension("manifest")).unwrap();
        manifest.lines().map(portable).collect()
    }
}

fn expect_equal(made: &[Record], source: &[Record]) {
    assert_eq!(made.len(), source.len(), "as many files");
    for (made, source) in made.iter().zip(source) {
        assert_eq!(made, source);
    }
}

#[test]
fn an_image_of_a_directory_is_the_directory() {
    let Some(scratch) = needs::met(Scratch::new()) else { return };
    let source = scratch.source();
    assert!(source.iter().any(|record| record.projid.is_some_and(|project| project != 0)));
    let layouts: [&[&str]; 8] = [
        &[],
        &["--minimize"],
        &["--minimize", "-d", "agcount=1", "-m", "rmapbt=0"],
        &["-b", "size=1024", "-m", "rmapbt=0"],
        &["-m", "reflink=0,finobt=0", "-i", "size=1024", "--free", "30%"],
        &["-n", "parent=1,size=8192", "--free", "10m"],
        &["-d", "agcount=9", "--size", "2g", "-i", "nrext64=0,exchange=1"],
        &["-m", "crc=1", "-i", "sparse=0", "-b", "size=16384"],
    ];
    for (number, layout) in layouts.into_iter().enumerate() {
        expect_equal(&scratch.create("directory", &format!("{number}.xfs"), layout), &source);
        std::fs::remove_file(scratch.made(&format!("{number}.xfs"))).unwrap();
    }
}

#[test]
fn an_image_of_an_archive_is_what_tar_kept() {
    let Some(scratch) = needs::met(Scratch::new()) else { return };
    let made: Vec<_> = scratch.create("archive", "made.xfs", &[]).into_iter().map(archived).collect();
    // Tar has no sockets.
    let source = scratch.source().into_iter().filter(|record| record.kind != Kind::Socket).map(archived);
    expect_equal(&made, &source.collect::<Vec<_>>());
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let Some(scratch) = needs::met(Scratch::new()) else { return };
    let sum = |threads: &str| {
        let name = format!("{threads}.xfs");
        scratch.create("directory", &name, &["--reproducible", "--size", "1g", "--threads", threads]);
        std::fs::remove_file(scratch.made(&name)).unwrap();
        std::fs::read_to_string(scratch.made(&format!("{name}.sum"))).unwrap()
    };
    let first = sum("1");
    assert_eq!([sum("2"), sum("5")], [first.clone(), first]);
}
