//! `setfattr`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::{ArgAction, Args};
use xebec::{SetAttribute, Volume};

use super::{Edit, each};
use crate::values;

/// Arguments of `setfattr`.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "A value that begins with 0x is hexadecimal, one that begins with 0s is base64; all else is \
    text, in which \\ooo stands for a byte in octal. Access control lists are system.posix_acl_access and \
    system.posix_acl_default, in the binary form of Linux.\n\n\
    Examples:\n  xebec setfattr disk.xfs -n user.origin -v \"a mirror\" /srv/file\n  \
    xebec setfattr disk.xfs -n security.capability -v 0x0100000200040000000000000000000000000000 /bin/ping\n  \
    xebec setfattr disk.xfs -x user.origin /srv/file"
)]
pub struct Setfattr {
    /// The attribute to set.
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Its value (empty); -v for short.
    #[arg(long, value_name = "VALUE", requires = "name", allow_hyphen_values = true)]
    value: Option<OsString>,
    /// The attribute to remove.
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Only where it does not exist.
    #[arg(long, requires = "name")]
    create: bool,
    /// Only where it exists.
    #[arg(long, requires = "name", conflicts_with = "create")]
    replace: bool,
    /// Change a symbolic link itself, not what it leads to.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// What to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Edit for Setfattr {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let value = self.value.as_ref().map_or(Ok(Vec::new()), |value| values::decode(value.as_bytes()));
        let value = match value {
            Ok(value) => value,
            Err(error) => return tell(error),
        };
        let how = match (self.create, self.replace) {
            (true, _) => SetAttribute::Create,
            (_, true) => SetAttribute::Replace,
            _ => SetAttribute::Any,
        };
        each(volume, &self.paths, tell, |path| {
            let ino = volume.resolve(path, !self.no_dereference)?;
            match (&self.name, &self.remove) {
                (Some(name), _) => volume.set_attribute(ino, name.as_bytes(), &value, how),
                (_, Some(name)) => volume.remove_attribute(ino, name.as_bytes()),
                (None, None) => Ok(()),
            }
        });
    }
}
