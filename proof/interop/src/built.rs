//! Prerequisites that take long to build: the program `xebec`, and the images of the corpus.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the command `make-images` if everything that it needs is available.
fn make_images() -> Result<Command, String> {
    needs::mounting()?;
    needs::tools(&["xfs_admin", "xfs_growfs", "xfs_mdrestore", "xfs_metadump"])?;
    needs::tools(&["xz", "mke2fs", "mkfs.vfat", "mkfs.btrfs"])?;
    let mut make = needs::command("bash");
    make.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("make-images"));
    Ok(make)
}

/// Creates the images of the corpus that match `patterns`, or all, in a folder. `interop` is the binary if it is
/// already built.
///
/// # Errors
/// A program or privilege is missing, or `make-images` failed.
pub fn images(folder: &Path, patterns: &[&str], interop: Option<&str>) -> Result<(), String> {
    let mut make = make_images()?;
    make.arg(folder).args(patterns).envs(interop.map(|program| ("XEBEC_INTEROP", program)));
    let status = make.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err("make-images failed".into()) }
}

/// Returns the folder of the corpus: `XEBEC_IMAGES` if it is set, otherwise a folder below `scratch` that `make-images`
/// fills, which takes some minutes the first time.
///
/// # Errors
/// A program or privilege is missing, or `make-images` failed.
pub fn corpus(scratch: &Path) -> Result<PathBuf, String> {
    if let Some(ready) = std::env::var_os("XEBEC_IMAGES") {
        return Ok(ready.into());
    }
    let folder = scratch.join("images");
    images(&folder, &[], None)?;
    Ok(folder)
}

/// Returns the path of the image `default` of the corpus, without extension. It is created if `XEBEC_IMAGES` does not
/// have it.
///
/// # Errors
/// A program or privilege is missing, or `make-images` failed.
pub fn default_image(scratch: &Path, interop: &str) -> Result<PathBuf, String> {
    let folder = std::env::var_os("XEBEC_IMAGES").map_or_else(|| scratch.join("images"), PathBuf::from);
    if !folder.join("default.xfs").exists() {
        images(&folder, &["default"], Some(interop))?;
    }
    Ok(folder.join("default"))
}

/// Builds the program `xebec` with the profile of this test, and returns its path.
///
/// # Errors
/// The build fails.
pub fn xebec() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    // Test binaries are in the subfolder `deps` of the profile's folder.
    let folder = test.parent().and_then(Path::parent).ok_or("the path of the test has no parent")?;
    let mut build = match std::env::var_os("CARGO") {
        Some(cargo) => needs::own(cargo),
        None => needs::tools(&["cargo"]).map(|()| needs::command("cargo"))?,
    };
    build.args(["build", "--quiet", "--package", "xebec-cli"]);
    if let Some(profile) = folder.file_name().filter(|name| *name != "debug") {
        build.arg("--profile").arg(profile);
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().map_err(|e| e.to_string())?;
    if status.success() { Ok(folder.join("xebec")) } else { Err("cannot build xebec".into()) }
}
