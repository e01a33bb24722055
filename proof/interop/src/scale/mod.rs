//! Trees of which there is much of one thing, made in a directory: what an image of them must hold.
//!
//! | part | what there is much of |
//! |---|---|
//! | `names` | names of 255 bytes, in every encoding and in none |
//! | `much` | files, links to one file, attributes, bytes between data |
//!
//! The same case and count give the same tree; only times differ.

mod much;
mod names;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The tree to make, and how large.
#[derive(clap::Args)]
pub struct Options {
    /// What there is much of.
    #[arg(value_enum)]
    pub case: Case,
    /// Where to make it: a directory that exists.
    pub dir: PathBuf,
    /// How much of it.
    #[arg(long)]
    pub count: u64,
}

/// What there is much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Files, empty or small, in directories of all sizes.
    Files,
    /// Names of one file, and of some others.
    Links,
    /// Names of all lengths and bytes.
    Names,
    /// Extended attributes: as many on one file as can be listed, the rest over files of every kind.
    Attributes,
    /// Bytes of a file that has data at both ends, in the middle, and little between.
    Sparse,
}

/// Makes the tree.
///
/// # Errors
/// The first call that failed, with what it was for.
pub fn run(options: &Options) -> Result<()> {
    let Options { case, dir, count } = options;
    match case {
        Case::Files => much::files(dir, *count),
        Case::Links => much::links(dir, *count),
        Case::Names => names::make(dir, *count),
        Case::Attributes => much::attributes(dir, *count),
        Case::Sparse => much::sparse(dir, *count),
    }
    .with_context(|| format!("{case:?} in {}", dir.display()))
}

/// Makes a directory.
fn folder(path: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Makes a file that holds this.
fn file(path: &Path, holds: &[u8]) -> Result<()> {
    std::fs::write(path, holds).with_context(|| path.display().to_string())
}
