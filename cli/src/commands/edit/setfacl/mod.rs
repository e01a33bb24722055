//! `setfacl`.
//!
//! | part | subject |
//! |---|---|
//! | this file | changes of ACL entries |
//! | [`restore`] | restoring the output of `getfacl` |

mod restore;

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use format::attr::acl::{LINUX_ACCESS, LINUX_DEFAULT};
use format::inode::FileType;
use xebec::{FileId, Metadata, SetAttribute, Volume, errno};

use super::{Edit, for_each_file, visit_tree};
use crate::acl::spec::{AclEntry, Entries, Grants, Removals};
use crate::acl::{Acl, Mask};
use crate::owners::IdsByName;

/// Arguments of `setfacl`.
#[derive(Clone, Debug, Default, Args)]
#[command(
    after_help = "An ACL entry is [default:]user:NAME:PERMS, group:NAME:PERMS, mask::PERMS or other::PERMS, \
    abbreviated d, u, g, m, o; without NAME it applies to the owner or the owning group. NAME is an ID, or a name \
    in /etc/passwd or /etc/group of the volume. PERMS are letters of rwx, X (execute for directories and files \
    that someone may execute), -, or an octal digit. Files contain one entry per line, as written by getfacl.\n\n\
    --restore reads the output of getfacl -R and restores ACLs, owners, groups, and the set-user-ID, set-group-ID \
    and sticky bits of all files in it. Relative names start at the root.\n\n\
    Options are applied in the order --set, -b, -k, -x, -m. Then the mask is recalculated, unless it was set \
    explicitly. An ACL that is equivalent to the permission bits is not stored. Symbolic links on the command line \
    are followed; with -R, links below are skipped.\n\n\
    Examples:\n  xebec setfacl -m u:1000:rw,g:33:r disk.xfs /srv/file\n  \
    xebec setfacl -R -m u:1000:rwX,d:u:1000:rwX disk.xfs /srv\n  xebec setfacl -b disk.xfs /srv/file\n  \
    xebec getfacl -R old.xfs /srv | xebec setfacl --restore - new.xfs"
)]
pub struct Setfacl {
    /// Add or modify ACL entries.
    #[arg(short, long, value_name = "ENTRIES")]
    #[arg(required_unless_present_any = [
        "modify_file", "remove", "remove_file", "remove_all", "remove_default", "set", "set_file", "restore",
    ])]
    modify: Vec<Grants>,
    /// Read the entries to modify from a host file; - for standard input.
    #[arg(short = 'M', long, value_name = "FILE")]
    modify_file: Option<PathBuf>,
    /// Remove ACL entries.
    #[arg(short = 'x', long, value_name = "ENTRIES")]
    remove: Vec<Removals>,
    /// Read the entries to remove from a host file; - for standard input.
    #[arg(short = 'X', long, value_name = "FILE")]
    remove_file: Option<PathBuf>,
    /// Replace the ACL.
    #[arg(long, value_name = "ENTRIES")]
    set: Vec<Grants>,
    /// Read the entries of the new ACL from a host file; - for standard input.
    #[arg(long, value_name = "FILE")]
    set_file: Option<PathBuf>,
    /// Remove all extended ACL entries and the default ACL.
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the default ACL.
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// Operate on the default ACL, which new files in a directory inherit.
    #[arg(short, long)]
    default: bool,
    /// Do not recalculate the mask.
    #[arg(short, long)]
    no_mask: bool,
    /// Recalculate the mask even if it is set explicitly.
    #[arg(long, conflicts_with = "no_mask")]
    mask: bool,
    /// Change directories and their contents recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Restore ACLs from a host file written by getfacl; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "modify", "modify_file", "remove", "remove_file", "remove_all", "remove_default", "set", "set_file",
        "default", "no_mask", "mask", "recursive",
    ])]
    restore: Option<PathBuf>,
    /// Files to change.
    #[arg(required_unless_present = "restore", conflicts_with = "restore", value_name = "PATH")]
    paths: Vec<OsString>,
}

/// The parsed options.
struct AclChange<'a> {
    arguments: &'a Setfacl,
    users: IdsByName,
    groups: IdsByName,
    set: Vec<AclEntry>,
    remove: Vec<AclEntry>,
    modify: Vec<AclEntry>,
}

/// Both ACLs of a file.
#[derive(Clone)]
struct Acls {
    access: Acl,
    default: Acl,
}

impl Edit for Setfacl {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        if let Some(path) = &self.restore {
            return restore::perform(path, volume, report);
        }
        let change = AclChange::of(self, volume)?;
        for_each_file(volume, &self.paths, report, |path| {
            let top = volume.resolve(path, true)?;
            visit_tree(volume, top, self.recursive, &mut |id, file| match file.file_type {
                FileType::Symlink => Ok(()),
                _ => change.apply(volume, id, file),
            })
        });
        Ok(())
    }
}

impl<'a> AclChange<'a> {
    fn of(arguments: &'a Setfacl, volume: &Volume) -> anyhow::Result<Self> {
        Ok(Self {
            arguments,
            users: IdsByName::of(volume, b"/etc/passwd"),
            groups: IdsByName::of(volume, b"/etc/group"),
            set: entries(&arguments.set, arguments.set_file.as_deref())?,
            remove: entries(&arguments.remove, arguments.remove_file.as_deref())?,
            modify: entries(&arguments.modify, arguments.modify_file.as_deref())?,
        })
    }

    fn apply(&self, volume: &Volume, id: FileId, file: &Metadata) -> anyhow::Result<()> {
        let directory = file.file_type == FileType::Directory;
        let has_default = self.entries().any(|entry| self.is_default(entry));
        if has_default && !directory && !self.arguments.recursive {
            anyhow::bail!("only directories can have default ACLs");
        }
        let before = Acls {
            access: read_acl(volume, id, LINUX_ACCESS)?.unwrap_or_else(|| Acl::of_mode(file.permissions)),
            default: read_acl(volume, id, LINUX_DEFAULT)?.unwrap_or_default(),
        };
        let after = self.change(&before, directory)?;
        if after.access != before.access {
            after.access.verify("access")?;
            volume.set_attribute(id, LINUX_ACCESS.as_bytes(), &after.access.to_linux(), SetAttribute::Any)?;
        }
        if after.default == before.default {
            return Ok(());
        }
        if after.default.is_empty() {
            return match volume.remove_attribute(id, LINUX_DEFAULT.as_bytes()) {
                Err(error) if error.errno() == errno::ENODATA => Ok(()),
                removed => Ok(removed?),
            };
        }
        after.default.verify("default")?;
        let value = after.default.to_linux();
        Ok(volume.set_attribute(id, LINUX_DEFAULT.as_bytes(), &value, SetAttribute::Any)?)
    }

    /// Applies the options to the ACLs of a file.
    fn change(&self, before: &Acls, directory: bool) -> anyhow::Result<Acls> {
        let Acls { mut access, mut default } = before.clone();
        if self.set.iter().any(|entry| !self.is_default(entry)) {
            access = Acl::default();
        }
        if self.set.iter().any(|entry| self.is_default(entry)) {
            default = Acl::default();
        }
        self.grant(&self.set, &mut access, &mut default, directory)?;
        if self.arguments.remove_all {
            access.reduce();
        }
        if self.arguments.remove_all || self.arguments.remove_default {
            default = Acl::default();
        }
        for entry in &self.remove {
            let subject = entry.resolve(&self.users, &self.groups)?;
            if self.is_default(entry) { default.remove(subject) } else { access.remove(subject) }
        }
        self.grant(&self.modify, &mut access, &mut default, directory)?;
        let mask = match (self.arguments.mask, self.arguments.no_mask) {
            (true, _) => Mask::Always,
            (_, true) => Mask::Keep,
            _ => Mask::Auto,
        };
        let changes =
            |is_default: bool| self.entries().any(move |entry| self.is_default(entry) == is_default);
        let sets_mask =
            |is_default| self.entries().any(|entry| entry.is_mask() && self.is_default(entry) == is_default);
        if changes(false) {
            access.update_mask(mask, sets_mask(false));
        }
        if changes(true) && directory {
            if !default.is_empty() {
                default.complete(&access);
            }
            default.update_mask(mask, sets_mask(true));
        }
        Ok(Acls { access, default })
    }

    fn grant(
        &self,
        entries: &[AclEntry],
        access: &mut Acl,
        default: &mut Acl,
        directory: bool,
    ) -> anyhow::Result<()> {
        for entry in entries {
            let subject = entry.resolve(&self.users, &self.groups)?;
            match (self.is_default(entry), directory) {
                (false, _) => access.set(subject, entry.permissions, directory),
                (true, true) => default.set(subject, entry.permissions, true),
                (true, false) => {}
            }
        }
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = &AclEntry> {
        self.set.iter().chain(&self.remove).chain(&self.modify)
    }

    fn is_default(&self, entry: &AclEntry) -> bool {
        entry.default || self.arguments.default
    }
}

/// The entries of the command line, and those of a host file.
fn entries<const HAVE_PERMISSIONS: bool>(
    operands: &[Entries<HAVE_PERMISSIONS>],
    file: Option<&Path>,
) -> anyhow::Result<Vec<AclEntry>> {
    let mut all: Vec<_> = operands.iter().flat_map(|Entries(entries)| entries.clone()).collect();
    if let Some(path) = file {
        let about = || path.display().to_string();
        let text = String::from_utf8(read_bytes(path)?).with_context(about)?;
        let Entries::<HAVE_PERMISSIONS>(entries) =
            text.parse().map_err(anyhow::Error::msg).with_context(about)?;
        all.extend(entries);
    }
    Ok(all)
}

/// Reads a host file or standard input.
fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().read_to_end(&mut text).map(drop),
        _ => std::fs::read(path).map(|all| text = all),
    };
    read.with_context(|| path.display().to_string())?;
    Ok(text)
}

/// Reads an ACL of a file, if it has one.
fn read_acl(volume: &Volume, id: FileId, name: &str) -> anyhow::Result<Option<Acl>> {
    match volume.get_attribute(id, name.as_bytes()) {
        Ok(value) => Ok(Some(Acl::of_linux(&value)?)),
        Err(error) if error.errno() == errno::ENODATA => Ok(None),
        Err(error) => Err(error.into()),
    }
}
