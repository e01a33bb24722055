//! Images created by `xebec create` must contain the source tree, as shown by the kernel.
//!
//! | part | subject |
//! |---|---|
//! | a directory | all types of files of the corpus, with several layouts |
//! | an archive | the same tree through `tar`, as far as tar keeps it |
//! | [`hints`] | extent size hints are copied |
//! | [`sync`] | `xebec sync` after changes of the tree |
//! | bytes | reproducible images do not depend on threads or time |
#![expect(clippy::unwrap_used, reason = "a failed test panics, also in helper functions")]

#[path = "create/hints.rs"]
mod hints;
#[path = "create/sync.rs"]
mod sync;

use std::path::{Path, PathBuf};

use interop::{built, compare};
use read::manifest::{EntryType, Record};

/// Mounts the image `$1` on `$2`, creates the image `$3` from it with the program `$4` and the options after `$7`,
/// judges it with the `xfs_repair` `$6`, and prints its manifest on a kernel mount with the program `$5`.
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

/// Returns an image of the corpus with all types of files, and the program.
fn prerequisites() -> Result<(PathBuf, PathBuf), String> {
    needs::mounting().and_then(|()| needs::tools(&["tar", "zstd"]))?;
    Ok((
        built::default_image(Path::new(env!("CARGO_TARGET_TMPDIR")), env!("CARGO_BIN_EXE_interop"))?,
        built::xebec()?,
    ))
}

fn portable(line: &str) -> Record {
    compare::portable(line).unwrap()
}

/// Clears what tar does not keep.
fn without_unarchived(mut record: Record) -> Record {
    record.atime = String::new();
    (record.projid, record.xflags) = (None, None);
    if matches!(record.kind, EntryType::Char | EntryType::Block | EntryType::Fifo) {
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
        let (image, xebec) = prerequisites()?;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(folder.path().join("mnt")).unwrap();
        Ok(Self { folder, image, xebec })
    }

    fn made(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates an image, and returns its manifest on a kernel mount.
    fn create(&self, how: &str, name: &str, words: &[&str]) -> Vec<Record> {
        let mut command = needs::script("-euo pipefail", CREATE, "create");
        command.arg(self.image.with_extension("xfs")).arg(self.made("mnt")).arg(self.made(name));
        let repair = needs::judges().join("xfs_repair");
        command.arg(&self.xebec).arg(env!("CARGO_BIN_EXE_interop")).arg(repair).arg(how);
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{how} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(portable).collect()
    }

    /// Returns the manifest of the source on a kernel mount.
    fn source(&self) -> Vec<Record> {
        let manifest = std::fs::read_to_string(self.image.with_extension("manifest")).unwrap();
        manifest.lines().map(portable).collect()
    }
}

fn expect_equal(made: &[Record], source: &[Record]) {
    assert_eq!(made.len(), source.len(), "number of files");
    for (made, source) in made.iter().zip(source) {
        assert_eq!(made, source);
    }
}

#[test]
fn image_matches_its_source_directory() {
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
fn image_matches_its_source_archive() {
    let Some(scratch) = needs::met(Scratch::new()) else { return };
    let made: Vec<_> =
        scratch.create("archive", "made.xfs", &[]).into_iter().map(without_unarchived).collect();
    // tar does not archive sockets.
    let source = scratch
        .source()
        .into_iter()
        .filter(|record| record.kind != EntryType::Socket)
        .map(without_unarchived);
    expect_equal(&made, &source.collect::<Vec<_>>());
}

#[test]
fn reproducible_images_do_not_depend_on_threads() {
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
