//! What tests use that takes long to make: the program, and the images of the corpus.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `make-images` with what it needs.
fn make_images() -> Result<Command, String> {
    needs::mounting()?;
    needs::tools(&["xfs_admin", "xfs_growfs", "xfs_mdrestore", "xfs_metadump"])?;
    needs::tools(&["xz", "mke2fs", "mkfs.vfat", "mkfs.btrfs"])?;
    let mut make = needs::command("bash");
    make.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("make-images"));
    Ok(make)
}

/// Makes images of the corpus in a folder, with the binary `interop` where it is built already; all without a pattern.
///
/// # Errors
/// A program or privilege that `make-images` lacks, or that it failed.
pub fn images(folder: &Path, patterns: &[&str], interop: Option<&str>) -> Result<(), String> {
    let mut make = make_images()?;
    make.arg(folder).args(patterns).envs(interop.map(|program| ("XEBEC_INTEROP", program)));
    let status = make.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err("make-images failed".into()) }
}

/// The corpus: the folder that `XEBEC_IMAGES` names, as it is; without it, the one that `make-images` fills below
/// `scratch`, which takes some minutes the first time.
///
/// # Errors
/// A program or privilege that `make-images` lacks, or that it failed.
pub fn corpus(scratch: &Path) -> Result<PathBuf, String> {
    if let Some(ready) = std::env::var_os("XEBEC_IMAGES") {
        return Ok(ready.into());
    }
    let folder = scratch.join("images");
    images(&folder, &[], None)?;
    Ok(folder)
}

/// The image `default` of the corpus, without its ending: the one that `XEBEC_IMAGES` has, or made below `scratch` with
/// the binary `interop`.
///
/// # Errors
/// A program or privilege that `make-images` lacks, or that it failed.
pub fn default_image(scratch: &Path, interop: &str) -> Result<PathBuf, String> {
    let folder = std::env::var_os("XEBEC_IMAGES").map_or_else(|| scratch.join("images"), PathBuf::from);
    if !folder.join("default.xfs").exists() {
        images(&folder, &["default"], Some(interop))?;
    }
    Ok(folder.join("default"))
}

/// The program `xebec`, built as this test was.
///
/// # Errors
/// When it does not build.
pub fn xebec() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    // Tests lie in `deps/` of the folder that programs lie in.
    let folder = test.parent().and_then(Path::parent).ok_or("the test lies in no folder")?;
    let mut build = match std::env::var_os("CARGO") {
        Some(cargo) => needs::own(cargo),
        None => needs::tools(&["cargo"]).map(|()| needs::command("cargo"))?,
    };
    build.args(["build", "--quiet", "--package", "xebec-cli"]);
    if let Some(profile) = folder.file_name().filter(|name| *name != "debug") {
        build.arg("--profile").arg(profile);
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().map_err(|e| e.to_string())?;
    if status.success() { Ok(folder.join("xebec")) } else { Err("xebec does not build".into()) }
}
