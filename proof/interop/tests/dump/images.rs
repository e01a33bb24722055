//! Where the images come from: a folder that `XEBEC_IMAGES` names, or a few that are made here.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is made where no folder is named: each form of directory, of attributes and of trees occurs in one of them.
const RECIPES: &[&str] = &["default", "bs1k", "dir16k-bs2k", "bare", "parent"];

/// The images that can be opened. `None`, with a loud line, where there are none and none can be made.
pub fn find() -> Option<Vec<PathBuf>> {
    if Command::new("xfs_db").arg("-V").output().is_err() {
        return skip("xfs_db is missing: install xfsprogs");
    }
    if let Some(folder) = std::env::var_os("XEBEC_IMAGES") {
        return Some(list(Path::new(&folder)));
    }
    if !rustix::process::geteuid().is_root() {
        return skip("images can be made by root only, and XEBEC_IMAGES names no folder of them");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dump-images");
    std::fs::create_dir_all(&folder).unwrap();
    let make = Path::new(env!("CARGO_MANIFEST_DIR")).join("make-images");
    let status = Command::new(make)
        .arg(&folder)
        .args(RECIPES)
        .env("XEBEC_INTEROP", env!("CARGO_BIN_EXE_interop"))
        .status()
        .unwrap();
    assert!(status.success(), "make-images failed");
    Some(list(&folder))
}

/// Says that nothing was compared. Where nothing may be skipped, that is a failure.
fn skip(why: &str) -> Option<Vec<PathBuf>> {
    assert!(std::env::var_os("XEBEC_SKIP_NOTHING").is_none(), "{why}");
    eprintln!("SKIPPED dump_shows_what_xfs_db_prints: {why}");
    None
}

/// The images of a folder but for three sorts: those that must be refused; large ones, which hold nothing more; and
/// dirty ones, where without the log's replay a pointer may lead to what is something else by now.
fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_image = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "xfs")
            && !path.with_extension("refuse").exists()
            && !path.with_extension("large").exists()
            && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("dirty"))
    };
    let mut images: Vec<_> = entries.filter(is_image).collect();
    images.sort();
    images
}
