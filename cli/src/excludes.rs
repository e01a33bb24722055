//! What is left out: `--exclude`, `--exclude-from` and `--ignore-unreadable`.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use transfer::Excludes;

use crate::commands::mkfs::wrong;
use crate::output::counted;

/// A warning about something that is left out.
pub fn left_out(error: impl Display) -> String {
    format!("{error}: left out, with what is in it or behind it")
}

/// What is said of all of them at the end.
pub fn count_left_out(count: u64) -> String {
    format!(
        "{} could not be read, and {} left out",
        counted(count, "file"),
        if count == 1 { "was" } else { "were" }
    )
}

/// Patterns, and what is done with what cannot be read.
#[derive(Clone, Debug, Default, Args)]
pub struct Exclude {
    /// Leave out what matches, as in .gitignore: `*.o` and `cache/` at any depth, `/proc` at the top, `!keep.o` takes
    /// back in. What is left out is not looked into. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// A file with one such pattern a line.
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Leave out what cannot be read, with a warning for each, and go on: that is no failure then. No part of such a
    /// file is left in the result.
    #[arg(long)]
    pub ignore_unreadable: bool,
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
