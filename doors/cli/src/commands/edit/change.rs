//! `chmod`, `chown`.

use std::ffi::OsString;
use std::str::FromStr;

use clap::Args;
use format::inode::FileType;
use xebec::{SetMetadata, Volume};

use super::mode::Mode;
use super::{Edit, each, tree};

/// Arguments of `chmod`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Symbolic links are followed where they are named, and left alone below.\n\n\
    Examples:\n  xebec chmod disk.xfs 600 /etc/shadow\n  xebec chmod -R disk.xfs u=rwX,go=rX /srv")]
pub struct Chmod {
    /// Permissions: in octal, or in letters as u+x,go=rX.
    #[arg(allow_hyphen_values = true)]
    mode: Mode,
    /// What to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Everything below, too.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Edit for Chmod {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        each(&self.paths, tell, |path| {
            let top = volume.resolve(path, true)?;
            tree(volume, top, self.recursive, &mut |ino, file| {
                if file.file_type == FileType::Symlink {
                    return Ok(());
                }
                let permissions = self.mode.apply(file.permissions, file.file_type == FileType::Directory);
                let set = SetMetadata { permissions: Some(permissions), ..SetMetadata::default() };
                volume.set_metadata(ino, &set)
            })
        });
    }
}

/// Owner and group by number, as `OWNER`, `OWNER:GROUP` or `:GROUP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owners {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl FromStr for Owners {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| match part {
            "" => Ok(None),
            _ => part.parse().map(Some).map_err(|_| {
                format!("{part:?} is no number (names mean nothing without the image's own user list)")
            }),
        };
        let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self { uid: number(uid)?, gid: number(gid)? })
    }
}

/// Arguments of `chown`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  xebec chown disk.xfs 1000:1000 /home/me\n  xebec chown -R disk.xfs :33 /srv/www"
)]
pub struct Chown {
    /// OWNER, OWNER:GROUP or :GROUP, by number.
    owners: Owners,
    /// What to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Everything below, too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change a symbolic link itself, not what it leads to.
    #[arg(long)]
    no_dereference: bool,
}

impl Edit for Chown {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let Owners { uid, gid } = self.owners;
        each(&self.paths, tell, |path| {
            let top = volume.resolve(path, !(self.no_dereference || self.recursive))?;
            tree(volume, top, self.recursive, &mut |ino, _| {
                volume.set_metadata(ino, &SetMetadata { uid, gid, ..SetMetadata::default() })
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers_and_each_may_be_left_out() {
        let parse = |text: &str| text.parse::<Owners>();
        assert_eq!(parse("7"), Ok(Owners { uid: Some(7), gid: None }));
        assert_eq!(parse("7:8"), Ok(Owners { uid: Some(7), gid: Some(8) }));
        assert_eq!(parse(":8"), Ok(Owners { uid: None, gid: Some(8) }));
        assert!(parse("root").is_err());
    }
}
