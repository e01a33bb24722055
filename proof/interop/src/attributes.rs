//! Random changes of extended attributes: by the kernel, or by whoever else can set and remove them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::fill::equal_hash_name;
use model::Rng;

/// What to do.
#[derive(Debug, Args)]
pub struct Options {
    /// The folder whose files are changed.
    pub dir: PathBuf,
    /// Where the random choices begin.
    #[arg(long)]
    pub seed: u64,
    /// How many changes are tried on each file.
    #[arg(long)]
    pub steps: u32,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// With its prefix.
    pub name: Vec<u8>,
    /// `None`: it is removed.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// A change of one of some dozens of names, many of one hash among them; values of all lengths, mostly short. Of
    /// `full` in eight it sets one, of the rest it removes one.
    pub fn random(rng: &mut Rng, full: u64) -> Self {
        let n = rng.below(40) as u32;
        let name = match rng.below(6) {
            0 => [&b"user."[..], &equal_hash_name(b"aaaabbbbccccdddd", n)].concat(),
            1 => format!("trusted.{n:0200}").into_bytes(),
            2 => format!("security.s{n}").into_bytes(),
            _ => format!("user.{n}").into_bytes(),
        };
        let sets = rng.below(8) < full;
        let length = match rng.below(24) {
            0..=11 => rng.below(40),
            12..=17 => rng.below(300),
            18..=21 => rng.below(4000),
            22 => rng.below(20_000),
            _ => 65_536 - rng.below(2),
        };
        let value = sets.then(|| rng.bytes(length as usize));
        Self { name, value }
    }
}

/// Changes attributes of each file in a folder, in the order of their names.
///
/// # Errors
/// What the kernel reports, but for attributes that are not there.
pub fn run(options: &Options) -> Result<()> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(&options.dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let mut rng = Rng::new(options.seed);
    for file in files {
        let full = rng.below(8);
        for _ in 0..options.steps {
            apply(&file, &Change::random(&mut rng, full)).with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}

fn apply(file: &Path, change: &Change) -> Result<()> {
    let done = match &change.value {
        Some(value) => rustix::fs::lsetxattr(file, &change.name[..], value, XattrFlags::empty()),
        None => rustix::fs::lremovexattr(file, &change.name[..]),
    };
    match done {
        // What is not there, and what a file of its kind cannot have.
        Err(Errno::NODATA | Errno::PERM) => Ok(()),
        other => Ok(other?),
    }
}
