//! `setfattr`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;
use xebec::{SetAttribute, Volume};

use super::{Edit, for_each_file};
use crate::values;

/// Arguments of `setfattr`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Values that start with 0x are hexadecimal, those that start with 0s base64; others are text, in \
    which \\ooo is an octal byte. ACLs are system.posix_acl_access and system.posix_acl_default, in the binary \
    format of Linux.\n\n\
    Examples:\n  xebec setfattr disk.xfs -n user.origin -v \"a mirror\" /srv/file\n  \
    xebec setfattr disk.xfs -n security.capability -v 0x0100000200040000000000000000000000000000 /bin/ping\n  \
    xebec setfattr disk.xfs -x user.origin /srv/file"
)]
pub struct Setfattr {
    /// Name of the attribute to set.
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Value of the attribute (default: empty); short form -v.
    #[arg(long, value_name = "VALUE", requires = "name", allow_hyphen_values = true)]
    value: Option<OsString>,
    /// Name of the attribute to remove.
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Fail if the attribute exists.
    #[arg(long, requires = "name")]
    create: bool,
    /// Fail if the attribute does not exist.
    #[arg(long, requires = "name", conflicts_with = "create")]
    replace: bool,
    /// Change symbolic links instead of their targets.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Files to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

impl Edit for Setfattr {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let value = self.value.as_ref().map_or(Ok(Vec::new()), |value| values::decode(value.as_bytes()))?;
        let mode = match (self.create, self.replace) {
            (true, _) => SetAttribute::Create,
            (_, true) => SetAttribute::Replace,
            _ => SetAttribute::Any,
        };
        for_each_file(volume, &self.paths, report, |path| {
            let id = volume.resolve(path, !self.no_dereference)?;
            match (&self.name, &self.remove) {
                (Some(name), _) => volume.set_attribute(id, name.as_bytes(), &value, mode),
                (_, Some(name)) => volume.remove_attribute(id, name.as_bytes()),
                (None, None) => Ok(()),
            }
        });
        Ok(())
    }
}
