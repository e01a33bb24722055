//! Selection of images: those of the corpus whose structures are consistent.

use std::path::{Path, PathBuf};

use interop::built;

/// Returns all images except those that must be refused, large ones without more structures, and dirty ones, where
/// pointers may be stale without log replay.
///
/// # Errors
/// A program or privilege is missing, or the images cannot be created.
pub fn find() -> Result<Vec<PathBuf>, String> {
    needs::tools(&["xfs_db"])?;
    let folder = built::corpus(Path::new(env!("CARGO_TARGET_TMPDIR")))?;
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut images: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_wanted(path)).collect();
    images.sort();
    Ok(images)
}

fn is_wanted(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "xfs")
        && !path.with_extension("refuse").exists()
        && !path.with_extension("large").exists()
        && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("dirty"))
}
