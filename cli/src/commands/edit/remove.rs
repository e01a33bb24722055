//! `rm`, `rmdir`.

use std::ffi::OsString;

use clap::Args;
use xebec::{Volume, errno};

use super::{Edit, for_each_file, parent_of_existing};
use crate::operands::NoMatch;

/// Arguments of `rm`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec rm disk.xfs /etc/motd\n  xebec rm disk.xfs '/var/log/*.gz'\n  \
    xebec rm -rf disk.xfs /var/cache /tmp/x")]
pub struct Rm {
    /// Files to remove.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Remove directories and their contents recursively.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories.
    #[arg(short, long)]
    dir: bool,
    /// Ignore nonexistent files.
    #[arg(short, long)]
    force: bool,
}

impl Edit for Rm {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        // A pattern without matches is a nonexistent file.
        let mut report_unless_forced = |error: anyhow::Error| {
            if !(self.force && error.is::<NoMatch>()) {
                report(error);
            }
        };
        for_each_file(volume, &self.paths, &mut report_unless_forced, |path| {
            let removed =
                parent_of_existing(volume, path).and_then(|(dir, name)| match volume.unlink(dir, name) {
                    Err(error) if error.errno() == errno::EISDIR && self.recursive => {
                        volume.remove_all(dir, name)
                    }
                    Err(error) if error.errno() == errno::EISDIR && self.dir => volume.rmdir(dir, name),
                    removed => removed,
                });
            match removed {
                Err(error) if self.force && error.errno() == errno::ENOENT => Ok(()),
                removed => removed,
            }
        });
        Ok(())
    }
}

/// Arguments of `rmdir`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  xebec rmdir disk.xfs /mnt/old")]
pub struct Rmdir {
    /// Empty directories to remove.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

impl Edit for Rmdir {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        for_each_file(volume, &self.paths, report, |path| {
            let (dir, name) = volume.resolve_parent(path)?;
            volume.rmdir(dir, name)
        });
        Ok(())
    }
}
