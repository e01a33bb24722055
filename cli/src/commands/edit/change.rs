//! `chmod`, `chown`.

use std::ffi::OsString;
use std::str::FromStr;

use clap::Args;
use format::inode::FileType;
use xebec::{SetMetadata, Volume};

use super::mode::Mode;
use super::{Edit, for_each_file, visit_tree};
use crate::owners::{self, NameOrId};

/// Arguments of `chmod`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Symbolic links on the command line are followed; with -R, links below are not changed.\n\n\
    Examples:\n  xebec chmod disk.xfs 600 /etc/shadow\n  xebec chmod -R disk.xfs u=rwX,go=rX /srv"
)]
pub struct Chmod {
    /// File mode: octal, or symbolic such as u+x,go=rX.
    #[arg(allow_hyphen_values = true)]
    mode: Mode,
    /// Files to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Change directories and their contents recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Edit for Chmod {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        for_each_file(volume, &self.paths, report, |path| {
            let top = volume.resolve(path, true)?;
            visit_tree(volume, top, self.recursive, &mut |id, file| {
                if file.file_type == FileType::Symlink {
                    return Ok(());
                }
                let permissions = self.mode.apply(file.permissions, file.file_type == FileType::Directory);
                let set = SetMetadata { permissions: Some(permissions), ..SetMetadata::default() };
                volume.set_metadata(id, &set)
            })
        });
        Ok(())
    }
}

/// Owner and group: `OWNER`, `OWNER:GROUP`, `:GROUP`, or `OWNER:` for the owner's login group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owners {
    user: Option<NameOrId>,
    group: Group,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Group {
    /// Unchanged.
    Unchanged,
    /// The owner's login group.
    Login,
    Given(NameOrId),
}

impl FromStr for Owners {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |name: &str| if name.is_empty() { Ok(None) } else { name.parse().map(Some) };
        let (user, group) = match text.split_once(':') {
            None => (parse(text)?, Group::Unchanged),
            Some((user, group)) => match (parse(user)?, parse(group)?) {
                (user, Some(group)) => (user, Group::Given(group)),
                (user @ Some(_), None) => (user, Group::Login),
                (None, None) => (None, Group::Unchanged),
            },
        };
        Ok(Self { user, group })
    }
}

impl Owners {
    /// Resolves the names to IDs.
    fn resolve(&self, volume: &Volume) -> anyhow::Result<(Option<u32>, Option<u32>)> {
        let uid = self.user.as_ref().map(|user| user.user(volume)).transpose()?;
        let gid = match (&self.group, uid) {
            (Group::Given(group), _) => Some(group.group(volume)?),
            (Group::Login, Some(uid)) => Some(owners::login_group(volume, uid)?),
            _ => None,
        };
        Ok((uid, gid))
    }
}

/// Arguments of `chown`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Names are looked up in /etc/passwd and /etc/group of the image. As in GNU chown, `alice:` also \
    sets the group to the login group of alice.\n\n\
    Examples:\n  xebec chown disk.xfs 1000:1000 /home/me\n  xebec chown -R disk.xfs alice: /home/alice\n  \
    xebec chown -R disk.xfs :www-data /srv/www"
)]
pub struct Chown {
    /// OWNER, OWNER:GROUP, :GROUP or OWNER:, as IDs or as names in the image.
    owners: Owners,
    /// Files to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Change directories and their contents recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links instead of their targets.
    #[arg(short = 'h', long)]
    no_dereference: bool,
}

impl Edit for Chown {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let (uid, gid) = self.owners.resolve(volume)?;
        for_each_file(volume, &self.paths, report, |path| {
            let top = volume.resolve(path, !(self.no_dereference || self.recursive))?;
            visit_tree(volume, top, self.recursive, &mut |id, _| {
                volume.set_metadata(id, &SetMetadata { uid, gid, ..SetMetadata::default() })
            })
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_owner_and_group_by_id_and_name() {
        let parse = |text: &str| text.parse::<Owners>();
        let group = |id| Group::Given(NameOrId::Id(id));
        let owners = |user: Option<NameOrId>, group| Ok(Owners { user, group });
        assert_eq!(parse("7"), owners(Some(NameOrId::Id(7)), Group::Unchanged));
        assert_eq!(parse("7:8"), owners(Some(NameOrId::Id(7)), group(8)));
        assert_eq!(parse(":8"), owners(None, group(8)));
        assert_eq!(parse("root"), owners(Some(NameOrId::Name("root".into())), Group::Unchanged));
        assert_eq!(parse("root:"), owners(Some(NameOrId::Name("root".into())), Group::Login));
        assert!(parse("4294967296").is_err() && parse("a b").is_err() && parse("/etc/motd").is_err());
    }
}
