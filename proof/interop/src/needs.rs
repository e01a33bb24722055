//! What tests need besides a Rust toolchain, and what they say when it is not there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tells loudly that a test was skipped. Where nothing may be skipped, as in CI, it fails instead.
///
/// # Panics
/// When `CI` is `true`, or `XEBEC_SKIP_NOTHING` is set.
#[expect(clippy::panic, reason = "a test that may not skip itself fails")]
pub fn skip(test: &str, why: &str) {
    let strict =
        std::env::var_os("XEBEC_SKIP_NOTHING").is_some() || std::env::var("CI").is_ok_and(|ci| ci == "true");
    if strict {
        panic!("{test} cannot run: {why}");
    }
    // Not by a macro, whose output the test harness keeps to itself unless the test fails.
    let _ = writeln!(std::io::stderr().lock(), "\nSKIPPED {test}: {why}");
}

/// Why this process cannot mount images, if it cannot.
pub fn mounting() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("making images needs root, for loop mounts".into());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err("there are no loop devices".into());
    }
    tools(&["mkfs.xfs", "xfs_io", "losetup", "unshare"])?;
    newer_xfsprogs()
}

/// Why nothing can be mounted through FUSE, if it cannot.
pub fn fuse() -> Result<(), String> {
    if !Path::new("/dev/fuse").exists() {
        return Err("this kernel has no FUSE".into());
    }
    tools(&["fusermount3"])
}

/// Why the newer xfsprogs cannot be used, if it cannot.
pub fn newer_xfsprogs() -> Result<(), String> {
    let repair = crate::damage::record::newer().join("xfs_repair");
    if repair.exists() { Ok(()) } else { Err(format!("{} is missing: run .ci/install", repair.display())) }
}

/// Which of the programs is not installed, if one is not.
pub fn tools(names: &[&str]) -> Result<(), String> {
    for name in names {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        if !found.is_ok_and(|o| o.status.success()) {
            return Err(format!("{name} is not installed: run .ci/install"));
        }
    }
    Ok(())
}

/// The corpus: the folder that `XEBEC_IMAGES` names, as it is; without it, the one that `make-images` fills below
/// `scratch`, which takes some minutes the first time.
///
/// # Errors
/// What keeps `make-images` from working.
pub fn corpus(scratch: &Path) -> Result<PathBuf, String> {
    if let Some(ready) = std::env::var_os("XEBEC_IMAGES") {
        return Ok(ready.into());
    }
    mounting()?;
    let images = scratch.join("images");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("make-images");
    let status =
        Command::new(&script).arg(&images).status().map_err(|e| format!("{}: {e}", script.display()))?;
    if status.success() { Ok(images) } else { Err(format!("{} failed", script.display())) }
}

/// The image `default` of the corpus, without its ending: the one that `XEBEC_IMAGES` has, or made below `scratch` with
/// the binary `interop`.
///
/// # Errors
/// What keeps `make-images` from working.
pub fn default_image(scratch: &Path, interop: &str) -> Result<PathBuf, String> {
    let folder = std::env::var_os("XEBEC_IMAGES").map_or_else(|| scratch.join("images"), PathBuf::from);
    if !folder.join("default.xfs").exists() {
        mounting()?;
        let make = Path::new(env!("CARGO_MANIFEST_DIR")).join("make-images");
        let status = Command::new(make).arg(&folder).arg("default").env("XEBEC_INTEROP", interop).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err("make-images failed".into());
        }
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
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--package", "xebec-cli"]);
    if let Some(profile) = folder.file_name().filter(|name| *name != "debug") {
        build.arg("--profile").arg(profile);
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().map_err(|e| e.to_string())?;
    if status.success() { Ok(folder.join("xebec")) } else { Err("xebec does not build".into()) }
}
