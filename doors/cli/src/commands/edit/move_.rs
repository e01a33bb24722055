//! `mv`.

use std::ffi::OsString;

use base::{Ino, errno};
use clap::Args;
use format::inode::FileType;
use xebec::{Rename, Volume};

use super::{Edit, at, bytes};
use crate::failure::At;
use crate::names;

/// Arguments of `mv`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec mv disk.xfs /etc/motd /etc/motd.old\n  \
    xebec mv disk.xfs /a /b /directory\n  xebec mv --exchange disk.xfs /current /next")]
pub struct Mv {
    /// What to move, and at the end where to: a new name, or a directory.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Leave what has the new name alone.
    #[arg(short, long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Both names exist, and change places.
    #[arg(long)]
    exchange: bool,
    /// The last path is a name, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl Edit for Mv {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let Some((to, sources)) = self.paths.split_last() else { return };
        for source in sources {
            if let Err(error) = self.rename(volume, bytes(source), bytes(to), sources.len() > 1) {
                tell(error);
            }
        }
    }
}

impl Mv {
    fn rename(&self, volume: &Volume, source: &[u8], to: &[u8], into: bool) -> anyhow::Result<()> {
        let (from, name) = volume.resolve_parent(source).map_err(at(source))?;
        let as_name = self.exchange || (self.no_target_directory && !into);
        let place = match as_name {
            true => volume.resolve_parent(to),
            false => destination(volume, to, source, true),
        };
        let (dir, new_name) = place.map_err(at(to))?;
        let how = match (self.exchange, self.no_clobber) {
            (true, _) => Rename::Exchange,
            (false, true) => Rename::NoReplace,
            (false, false) => Rename::Replace,
        };
        match volume.rename(from, name, dir, new_name, how) {
            Err(error) if self.no_clobber && error.errno() == errno::EEXIST => Ok(()),
            // Both directories exist: it is the source that does not.
            Err(error) if error.errno() == errno::ENOENT && !self.exchange => Err(at(source)(error)),
            Err(error) => {
                let text = format!("cannot be moved to {}", names::quoted(to));
                Err(anyhow::Error::new(error).context(text).context(At(source.to_vec())))
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Where `source` goes if it is sent to `path`: into it, if that is a directory (or, if `follow`, leads to one), under
/// its own last name; else to that name.
pub(super) fn destination<'p>(
    volume: &Volume,
    path: &'p [u8],
    source: &'p [u8],
    follow: bool,
) -> xebec::Result<(Ino, &'p [u8])> {
    let there = volume.resolve(path, follow).and_then(|ino| volume.metadata(ino));
    match there {
        Ok(there) if there.file_type == FileType::Directory => {
            let name = source.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
            Ok((there.ino, name.unwrap_or_default()))
        }
        _ => volume.resolve_parent(path),
    }
}
