//! `mv`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{anyhow, bail};
use clap::Args;
use format::inode::FileType;
use xebec::{FileId, Rename, Volume, errno};

use super::{Edit, at_path, parent_of_existing, parent_of_new, paths};
use crate::failure::AtPath;
use crate::names;

/// Arguments of `mv`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec mv disk.xfs /etc/motd /etc/motd.old\n  \
    xebec mv disk.xfs /a /b /directory\n  xebec mv --exchange disk.xfs /current /next")]
pub struct Mv {
    /// Files to move, and the target: a new name, or a directory.
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Do not overwrite existing files.
    #[arg(short, long, conflicts_with = "exchange", overrides_with = "force")]
    no_clobber: bool,
    /// Overwrite existing files (default).
    #[arg(short, long)]
    force: bool,
    /// Move all files into this directory.
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["exchange", "no_target_directory"])]
    target_directory: Option<OsString>,
    /// Exchange two existing files.
    #[arg(long)]
    exchange: bool,
    /// Treat the target as a normal file, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl Edit for Mv {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let (to, operands) = match (&self.target_directory, self.paths.split_last()) {
            (Some(to), _) => (to, &self.paths[..]),
            (None, Some((to, operands))) if !operands.is_empty() => (to, operands),
            _ => bail!("missing operand: mv PATH... TARGET"),
        };
        let (to, sources) = (to.as_bytes(), paths(volume, operands, report));
        if self.target_directory.is_some() || operands.len().max(sources.len()) > 1 {
            if self.no_target_directory {
                bail!("-T takes one source only");
            }
            expect_directory(volume, to)?;
        }
        let mut created = HashSet::new();
        for source in &sources {
            self.rename(volume, source, to, &mut created).unwrap_or_else(&mut *report);
        }
        Ok(())
    }
}

/// The target of several files must be a directory.
pub(super) fn expect_directory(volume: &Volume, path: &[u8]) -> anyhow::Result<()> {
    let target = volume.resolve(path, true).and_then(|id| volume.metadata(id));
    match target.map_err(at_path(path))?.file_type {
        FileType::Directory => Ok(()),
        _ => Err(anyhow!("target is not a directory").context(AtPath(path.to_vec()))),
    }
}

impl Mv {
    /// Moves one file; `created` are the names created so far, which must not be overwritten.
    fn rename(
        &self,
        volume: &Volume,
        source: &[u8],
        to: &[u8],
        created: &mut HashSet<(FileId, Vec<u8>)>,
    ) -> anyhow::Result<()> {
        let (from, name) = parent_of_existing(volume, source).map_err(at_path(source))?;
        let target = match self.exchange || self.no_target_directory {
            true => volume.resolve_parent(to),
            false => destination(volume, to, source, true),
        };
        let (dir, new_name) = target.map_err(at_path(to))?;
        let how = match (self.exchange, self.no_clobber) {
            (true, _) => Rename::Exchange,
            (false, true) => Rename::NoReplace,
            (false, false) => Rename::Replace,
        };
        if !self.no_clobber && (from, name) == (dir, new_name) {
            return Err(anyhow!("is the same file as {}", names::quoted(to)).context(AtPath(source.to_vec())));
        }
        if !self.no_clobber && !created.insert((dir, new_name.to_vec())) {
            let text = format!("will not overwrite just-created {}", names::quoted(new_name));
            return Err(anyhow!(text).context(AtPath(source.to_vec())));
        }
        match volume.rename(from, name, dir, new_name, how) {
            Err(error) if self.no_clobber && error.errno() == errno::EEXIST => Ok(()),
            // Both directories exist, so the source does not.
            Err(error) if error.errno() == errno::ENOENT && !self.exchange => Err(at_path(source)(error)),
            Err(error) => {
                let text = format!("cannot move to {}", names::quoted(to));
                Err(anyhow::Error::new(error).context(text).context(AtPath(source.to_vec())))
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Parent and name of the target for `source`: if `path` is a directory (or, with `follow`, a link to one), its own
/// name in it, else `path`.
pub(super) fn destination<'p>(
    volume: &Volume,
    path: &'p [u8],
    source: &'p [u8],
    follow: bool,
) -> xebec::Result<(FileId, &'p [u8])> {
    let target = volume.resolve(path, follow).and_then(|id| volume.metadata(id));
    match target {
        Ok(target) if target.file_type == FileType::Directory => {
            let name = source.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
            Ok((target.id(), name.unwrap_or_default()))
        }
        // A trailing slash requires a directory.
        _ if path.ends_with(b"/") => {
            let source = volume.resolve(source, false).and_then(|id| volume.metadata(id))?;
            match source.file_type {
                FileType::Directory => volume.resolve_parent(path),
                _ => parent_of_new(volume, path),
            }
        }
        _ => volume.resolve_parent(path),
    }
}
