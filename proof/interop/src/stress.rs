//! Keeps a mounted volume busy until it is shut down under it.

use anyhow::Result;
use std::path::PathBuf;

/// The volume, and how to work on it.
#[derive(clap::Args)]
pub struct Options {
    /// The root of the mounted volume.
    pub dir: PathBuf,
}

/// Works until the volume is shut down.
pub fn run(_options: &Options) -> Result<()> {
    Ok(())
}
