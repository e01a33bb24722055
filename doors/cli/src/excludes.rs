//! What is left out: `--exclude` and `--exclude-from`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use import::Excludes;

use crate::commands::mkfs::wrong;

/// Patterns.
#[derive(Clone, Debug, Default, Args)]
pub struct Exclude {
    /// Leave out what matches, as in .gitignore: `*.o` and `cache/` at any depth, `/proc` at the top, `!keep.o` takes
    /// back in. What is left out is not looked into. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// A file with one such pattern a line.
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
}

impl Exclude {
    /// All of them: those of files first, so that what the command line says decides.
    pub fn patterns(&self) -> anyhow::Result<Arc<Excludes>> {
        let mut lists = Vec::new();
        for path in &self.exclude_from {
            let list = std::fs::read_to_string(path);
            lists.push(list.map_err(|error| anyhow!("--exclude-from {}: {error}", path.display()))?);
        }
        let patterns =
            lists.iter().flat_map(|list| list.lines()).chain(self.exclude.iter().map(String::as_str));
        Excludes::new(patterns).map(Arc::new).map_err(|error| wrong(format!("--exclude: {error}")))
    }
}
