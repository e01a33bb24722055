//! Random changes of extended attributes, through the kernel or another implementation.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::fill::same_hash_name;
use model::Rng;

/// Options of `attributes`.
#[derive(Debug, Args)]
pub struct Options {
    /// Directory whose files are changed.
    pub dir: PathBuf,
    /// Seed of all random choices.
    #[arg(long)]
    pub seed: u64,
    /// Number of changes per file.
    #[arg(long)]
    pub steps: u32,
}

/// A change of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeChange {
    /// Name, with its prefix.
    pub name: Vec<u8>,
    /// New value; `None` to remove the attribute.
    pub value: Option<Vec<u8>>,
}

impl AttributeChange {
    /// Returns a random change of one of a few dozen names, many of them with the same hash. Values have all lengths
    /// and are mostly short. An attribute is set in `sets` of eight cases, and removed in the others.
    pub fn random(rng: &mut Rng, sets: u64) -> Self {
        let n = rng.below(40) as u32;
        let name = match rng.below(6) {
            0 => [&b"user."[..], &same_hash_name(b"aaaabbbbccccdddd", n)].concat(),
            1 => format!("trusted.{n:0200}").into_bytes(),
            2 => format!("security.s{n}").into_bytes(),
            _ => format!("user.{n}").into_bytes(),
        };
        let is_set = rng.below(8) < sets;
        let length = match rng.below(24) {
            0..=11 => rng.below(40),
            12..=17 => rng.below(300),
            18..=21 => rng.below(4000),
            22 => rng.below(20_000),
            _ => 65_536 - rng.below(2),
        };
        let value = is_set.then(|| rng.bytes(length as usize));
        Self { name, value }
    }
}

/// Changes attributes of each file in a directory, in the order of names.
///
/// # Errors
/// Errors of the kernel, except for missing attributes.
pub fn run(options: &Options) -> Result<()> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(&options.dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let mut rng = Rng::new(options.seed);
    for file in files {
        let sets = rng.below(8);
        for _ in 0..options.steps {
            apply(&file, &AttributeChange::random(&mut rng, sets))
                .with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

fn apply(file: &Path, change: &AttributeChange) -> Result<()> {
    let done = match &change.value {
        Some(value) => rustix::fs::lsetxattr(file, &change.name[..], value, XattrFlags::empty()),
        None => rustix::fs::lremovexattr(file, &change.name[..]),
    };
    match done {
        // The attribute does not exist, or files of this type cannot have it.
        Err(Errno::NODATA | Errno::PERM) => Ok(()),
        other => Ok(other?),
    }
}
