//! Options that override metadata of the sources.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use xebec::{Labels, Overrides};

use crate::commands::edit::mode::Mode;

/// Overrides of owners, modes and labels.
#[derive(Clone, Debug, Default, Args)]
pub struct OverrideOptions {
    /// Set owner and group of all files.
    #[arg(long, value_name = "UID[:GID]", value_parser = owner, help_heading = "Metadata")]
    owner: Option<(u32, Option<u32>)>,
    /// Set the mode of all files except symbolic links, as in chmod.
    #[arg(long, value_name = "MODE", help_heading = "Metadata")]
    mode: Option<Mode>,
    /// File with overrides, one file per line: PATH KEY=VALUE..., with the keys mode, uid, gid, mtime, xattr.NAME and,
    /// for files that the sources do not have, type, device and target (docs/create.md).
    #[arg(long, value_name = "FILE", help_heading = "Metadata")]
    overrides: Vec<PathBuf>,
    /// Set SELinux labels from a file_contexts file, as in setfiles(8): EXPRESSION [TYPE] CONTEXT. Paths are relative
    /// to the root of the image.
    #[arg(long, value_name = "FILE", help_heading = "Metadata")]
    file_contexts: Option<PathBuf>,
}

/// The labels of a file_contexts file.
pub fn labels(path: &Path) -> anyhow::Result<Labels> {
    let named = |error: &dyn std::fmt::Display| anyhow!("--file-contexts {}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
    Labels::parse(&text).map_err(|error| named(&error))
}

impl OverrideOptions {
    /// Reads all lists.
    pub fn read(&self) -> anyhow::Result<Overrides> {
        let mut overrides = Overrides::default();
        if let Some((uid, gid)) = self.owner {
            (overrides.uid, overrides.gid) = (Some(uid), gid);
        }
        if let Some(mode) = self.mode.clone() {
            overrides.mode = Some(Arc::new(move |permissions, directory| mode.apply(permissions, directory)));
        }
        overrides.labels = self.file_contexts.as_deref().map(labels).transpose()?;
        for path in &self.overrides {
            let list =
                std::fs::read_to_string(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
            overrides.add_list(&list).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        }
        Ok(overrides)
    }
}

fn owner(text: &str) -> Result<(u32, Option<u32>), String> {
    let (uid, gid) = match text.split_once(':') {
        Some((uid, gid)) => (uid, Some(gid)),
        None => (text, None),
    };
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a numeric user or group ID"));
    Ok((number(uid)?, gid.map(number).transpose()?))
}
