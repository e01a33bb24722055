//! Trees with extreme numbers of one thing, to create images of.
//!
//! | part | large numbers of |
//! |---|---|
//! | `names` | names of 255 bytes, in many encodings and in none |
//! | `files` | files, links to one file, attributes, and a large sparse file |
//!
//! The same case and count give the same tree; only times differ.

mod files;
mod names;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Options of `scale`.
#[derive(clap::Args)]
pub struct Options {
    /// Kind of the tree.
    #[arg(value_enum)]
    pub case: Case,
    /// An existing directory for the tree.
    pub dir: PathBuf,
    /// Number of items, or size in bytes.
    #[arg(long)]
    pub count: u64,
}

/// Kind of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Empty and small files, in directories of all sizes.
    Files,
    /// Hard links to one file, and to some others.
    Links,
    /// Names of all lengths and bytes.
    Names,
    /// Extended attributes: as many on one file as can be listed, the rest on files of all types.
    Attributes,
    /// A sparse file with data at both ends, in the middle, and some between.
    Sparse,
}

/// Creates the tree.
///
/// # Errors
/// The first call that failed, with its purpose.
pub fn run(options: &Options) -> Result<()> {
    let Options { case, dir, count } = options;
    match case {
        Case::Files => files::files(dir, *count),
        Case::Links => files::links(dir, *count),
        Case::Names => names::make(dir, *count),
        Case::Attributes => files::attributes(dir, *count),
        Case::Sparse => files::sparse(dir, *count),
    }
    .with_context(|| format!("{case:?} in {}", dir.display()))
}

/// Creates a directory.
fn folder(path: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Creates a file with these contents.
fn file(path: &Path, contents: &[u8]) -> Result<()> {
    std::fs::write(path, contents).with_context(|| path.display().to_string())
}
