//! Which images are compared: those of the corpus that hold structures at rest.

use std::path::{Path, PathBuf};

use interop::built;

/// The images but for three sorts: those that must be refused; large ones, which hold nothing more; and dirty ones,
/// where without the log's replay a pointer may lead to what is something else by now.
///
/// # Errors
/// What keeps them from being made, or from being compared.
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
