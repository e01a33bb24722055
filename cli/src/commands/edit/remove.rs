//! `rm`, `rmdir`.

use std::ffi::OsString;

use base::errno;
use clap::Args;
use xebec::Volume;

use super::{Edit, each, place_of_existing};
use crate::operands::NoMatch;

/// Arguments of `rm`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec rm disk.xfs /etc/motd\n  xebec rm disk.xfs '/var/log/*.gz'\n  \
    xebec rm -rf disk.xfs /var/cache /tmp/x")]
pub struct Rm {
    /// What to remove.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Directories too, with everything in them.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Directories that are empty, too.
    #[arg(short, long)]
    dir: bool,
    /// What does not exist is no error.
    #[arg(short, long)]
    force: bool,
}

impl Edit for Rm {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        // No file for a pattern is as no file of a name.
        let mut told = |error: anyhow::Error| {
            if !(self.force && error.is::<NoMatch>()) {
                tell(error);
            }
        };
        each(volume, &self.paths, &mut told, |path| {
            let removed =
                place_of_existing(volume, path).and_then(|(dir, name)| match volume.unlink(dir, name) {
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
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        each(volume, &self.paths, tell, |path| {
            let (dir, name) = volume.resolve_parent(path)?;
            volume.rmdir(dir, name)
        });
    }
}
