//! `--exclude`, `--exclude-from` and `--ignore-unreadable`.

use std::fmt::Display;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use xebec::Excludes;

use crate::commands::mkfs::wrong;

/// The warning about an unreadable file or archive that is skipped.
pub fn skipped(error: impl Display) -> String {
    format!("{error}: skipped")
}

/// Options of commands that skip files.
#[derive(Clone, Debug, Default, Args)]
pub struct Exclude {
    /// Skip files that match a pattern, as in .gitignore: `*.o` and `cache/` at any depth, `/proc` at the top,
    /// `!keep.o` to include again. Excluded directories are not entered. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Read patterns from a file, one per line.
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Skip unreadable files with a warning, without failing. No partial copy of such a file is kept.
    #[arg(long)]
    pub ignore_unreadable: bool,
}

impl Exclude {
    /// All patterns: those of files first, as later patterns take precedence.
    pub fn patterns(&self) -> anyhow::Result<Excludes> {
        let mut lists = Vec::new();
        for path in &self.exclude_from {
            let list = std::fs::read_to_string(path);
            lists.push(list.map_err(|error| anyhow!("--exclude-from {}: {error}", path.display()))?);
        }
        let patterns =
            lists.iter().flat_map(|list| list.lines()).chain(self.exclude.iter().map(String::as_str));
        Excludes::new(patterns).map_err(|error| wrong(format!("--exclude: {error}")))
    }
}
