//! `xebec extract` to a kernel mount must reproduce the tree of a volume, as shown by the kernel.

use std::path::{Path, PathBuf};

use interop::{built, compare};

/// Creates a volume `$1`, mounts it on `$2`, extracts the image `$3` to it with the program `$4`, and prints its
/// manifest with the program `$5`.
const EXTRACT: &str = r#"
truncate -s 1G "$1"
mkfs.xfs -q "$1"
mount -t xfs -o loop,noatime "$1" "$2"
trap 'umount "$2"' EXIT
"$4" extract "$3" --to "$2" --quiet
"$5" manifest "$2"
"#;

/// Returns an image of the corpus with all types of files, and the program.
fn prerequisites() -> Result<(PathBuf, PathBuf), String> {
    needs::mounting()?;
    Ok((
        built::default_image(Path::new(env!("CARGO_TARGET_TMPDIR")), env!("CARGO_BIN_EXE_interop"))?,
        built::xebec()?,
    ))
}

#[test]
fn extracted_tree_matches_the_kernels() {
    let Some((image, xebec)) = needs::met(prerequisites()) else { return };
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
    let records = |text: &str| text.lines().map(|line| compare::portable(line).unwrap()).collect::<Vec<_>>();
    let (ours, kernels) = (records(&ours), records(&kernels));
    assert_eq!(ours.len(), kernels.len(), "number of files");
    assert!(kernels.iter().any(|record| record.projid.is_some_and(|project| project != 0)));
    assert!(kernels.iter().any(|record| record.xflags.is_some_and(|flags| flags & 0x8 != 0)));
    for (ours, kernels) in ours.iter().zip(&kernels) {
        assert_eq!(ours, kernels);
    }
}
