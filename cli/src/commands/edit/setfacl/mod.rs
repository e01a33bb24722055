//! `setfacl`.
//!
//! | part | subject |
//! |---|---|
//! | this file | changing lists by entries |
//! | [`restore`] | putting back what `getfacl` wrote |

mod restore;

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base::{Ino, errno};
use clap::Args;
use format::attr::acl::{LINUX_ACCESS, LINUX_DEFAULT};
use format::inode::FileType;
use xebec::{Metadata, SetAttribute, Volume};

use super::{Edit, paths, tree};
use crate::acl::spec::{Entry, Grants, Removals};
use crate::acl::{List, Mask};
use crate::failure::At;
use crate::owners::Numbers;

/// Arguments of `setfacl`.
#[derive(Clone, Debug, Default, Args)]
#[command(
    after_help = "An entry is [default:]user:NAME:PERMS, group:NAME:PERMS, mask::PERMS or other::PERMS, with letters \
    d, u, g, m, o for short; without NAME it is for the owner or the owning group. NAME is a number, or a name of the \
    volume's own /etc/passwd or /etc/group. PERMS are letters of rwx, X (execute, for directories and what is \
    executable already), -, or one octal digit. A file of entries has one a line, as getfacl writes them.\n\n\
    What getfacl -R wrote, --restore puts back: lists, owners, groups, and the bits set-user-ID, set-group-ID and \
    sticky, of all files that are named there. Names that it wrote without their first slash count from the root.\n\n\
    Where several things are asked for, they are done in this order: --set, -b, -k, -x, -m. The mask then allows what \
    any entry below it allows, unless an entry of the command is the mask itself. A list that says no more than the \
    permission bits is not stored. Symbolic links are followed where they are named, and left alone below.\n\n\
    Examples:\n  xebec setfacl -m u:1000:rw,g:33:r disk.xfs /srv/file\n  \
    xebec setfacl -R -m u:1000:rwX,d:u:1000:rwX disk.xfs /srv\n  xebec setfacl -b disk.xfs /srv/file\n  \
    xebec getfacl -R old.xfs /srv | xebec setfacl --restore - new.xfs"
)]
pub struct Setfacl {
    /// Add these entries, or change them.
    #[arg(short, long, value_name = "ENTRIES")]
    #[arg(required_unless_present_any = [
        "modify_file", "remove", "remove_file", "remove_all", "remove_default", "set", "set_file", "restore",
    ])]
    modify: Vec<Grants>,
    /// Add or change the entries in this file of the machine; - is standard input.
    #[arg(short = 'M', long, value_name = "FILE")]
    modify_file: Option<PathBuf>,
    /// Remove these entries.
    #[arg(short = 'x', long, value_name = "ENTRIES")]
    remove: Vec<Removals>,
    /// Remove the entries in this file of the machine; - is standard input.
    #[arg(short = 'X', long, value_name = "FILE")]
    remove_file: Option<PathBuf>,
    /// Replace the list by these entries.
    #[arg(long, value_name = "ENTRIES")]
    set: Vec<Grants>,
    /// Replace the list by the entries in this file of the machine; - is standard input.
    #[arg(long, value_name = "FILE")]
    set_file: Option<PathBuf>,
    /// Remove all entries that permission bits cannot say, and the default list.
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the default list.
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// Entries are of the default list: what new files in a directory take over.
    #[arg(short, long)]
    default: bool,
    /// Leave the mask as it is.
    #[arg(short, long)]
    no_mask: bool,
    /// Fit the mask even where an entry of the command is the mask.
    #[arg(long, conflicts_with = "no_mask")]
    mask: bool,
    /// Everything below, too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Put back what is in this file of the machine, as getfacl wrote it; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "modify", "modify_file", "remove", "remove_file", "remove_all", "remove_default", "set", "set_file",
        "default", "no_mask", "mask", "recursive",
    ])]
    restore: Option<PathBuf>,
    /// Whose lists.
    #[arg(required_unless_present = "restore", conflicts_with = "restore", value_name = "PATH")]
    paths: Vec<OsString>,
}

/// What is to be done, read and looked up.
struct Plan<'a> {
    arguments: &'a Setfacl,
    users: Numbers,
    groups: Numbers,
    set: Vec<Entry>,
    remove: Vec<Entry>,
    modify: Vec<Entry>,
}

/// Both lists of a file.
struct Lists {
    access: List,
    default: List,
}

impl Edit for Setfacl {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        if let Some(path) = &self.restore {
            return restore::perform(path, volume, tell);
        }
        let plan = match Plan::of(self, volume) {
            Ok(plan) => plan,
            Err(error) => return tell(error),
        };
        for path in paths(volume, &self.paths, tell) {
            let done = volume.resolve(&path, true).map_err(anyhow::Error::from).and_then(|top| {
                tree(volume, top, self.recursive, &mut |ino, file| match file.file_type {
                    FileType::Symlink => Ok(()),
                    _ => plan.apply(volume, ino, file),
                })
            });
            if let Err(error) = done {
                tell(error.context(At(path)));
            }
        }
    }
}

impl<'a> Plan<'a> {
    fn of(arguments: &'a Setfacl, volume: &Volume) -> anyhow::Result<Self> {
        let grants = |given: &[Grants], file: &Option<PathBuf>| -> anyhow::Result<Vec<Entry>> {
            let mut all: Vec<Entry> = given.iter().flat_map(|Grants(entries)| entries.clone()).collect();
            if let Some(path) = file {
                all.extend(read::<Grants>(path)?.0);
            }
            Ok(all)
        };
        let mut remove: Vec<Entry> =
            arguments.remove.iter().flat_map(|Removals(entries)| entries.clone()).collect();
        if let Some(path) = &arguments.remove_file {
            remove.extend(read::<Removals>(path)?.0);
        }
        Ok(Self {
            arguments,
            users: Numbers::of(volume, b"/etc/passwd"),
            groups: Numbers::of(volume, b"/etc/group"),
            set: grants(&arguments.set, &arguments.set_file)?,
            remove,
            modify: grants(&arguments.modify, &arguments.modify_file)?,
        })
    }

    fn apply(&self, volume: &Volume, ino: Ino, file: &Metadata) -> anyhow::Result<()> {
        let directory = file.file_type == FileType::Directory;
        let asks_default = self.entries().any(|entry| self.is_default(entry));
        if asks_default && !directory && !self.arguments.recursive {
            anyhow::bail!("only directories have a default list");
        }
        let before = Lists {
            access: list(volume, ino, LINUX_ACCESS)?.unwrap_or_else(|| List::of_mode(file.permissions)),
            default: list(volume, ino, LINUX_DEFAULT)?.unwrap_or_default(),
        };
        let after = self.change(&before, directory)?;
        if after.access != before.access {
            after.access.verify("access")?;
            volume.set_attribute(
                ino,
                LINUX_ACCESS.as_bytes(),
                &after.access.to_linux(),
                SetAttribute::Any,
            )?;
        }
        if after.default == before.default {
            return Ok(());
        }
        if after.default.is_empty() {
            return match volume.remove_attribute(ino, LINUX_DEFAULT.as_bytes()) {
                Err(error) if error.errno() == errno::ENODATA => Ok(()),
                done => Ok(done?),
            };
        }
        after.default.verify("default")?;
        let value = after.default.to_linux();
        Ok(volume.set_attribute(ino, LINUX_DEFAULT.as_bytes(), &value, SetAttribute::Any)?)
    }

    /// What comes of a file's lists.
    fn change(&self, before: &Lists, directory: bool) -> anyhow::Result<Lists> {
        let Lists { mut access, mut default } =
            Lists { access: before.access.clone(), default: before.default.clone() };
        if self.set.iter().any(|entry| !self.is_default(entry)) {
            access = List::default();
        }
        if self.set.iter().any(|entry| self.is_default(entry)) {
            default = List::default();
        }
        self.grant(&self.set, &mut access, &mut default, directory)?;
        if self.arguments.remove_all {
            access.reduce();
        }
        if self.arguments.remove_all || self.arguments.remove_default {
            default = List::default();
        }
        for entry in &self.remove {
            let who = entry.who(&self.users, &self.groups)?;
            if self.is_default(entry) { default.remove(who) } else { access.remove(who) }
        }
        self.grant(&self.modify, &mut access, &mut default, directory)?;
        let mask = match (self.arguments.mask, self.arguments.no_mask) {
            (true, _) => Mask::Always,
            (_, true) => Mask::Keep,
            _ => Mask::Auto,
        };
        let touches =
            |is_default: bool| self.entries().any(move |entry| self.is_default(entry) == is_default);
        let gives_mask =
            |is_default| self.entries().any(|entry| entry.is_mask() && self.is_default(entry) == is_default);
        if touches(false) {
            access.fit_mask(mask, gives_mask(false));
        }
        if touches(true) && directory {
            if !default.is_empty() {
                default.complete(&access);
            }
            default.fit_mask(mask, gives_mask(true));
        }
        Ok(Lists { access, default })
    }

    fn grant(
        &self,
        entries: &[Entry],
        access: &mut List,
        default: &mut List,
        directory: bool,
    ) -> anyhow::Result<()> {
        for entry in entries {
            let who = entry.who(&self.users, &self.groups)?;
            match (self.is_default(entry), directory) {
                (false, _) => access.set(who, entry.permissions, directory),
                (true, true) => default.set(who, entry.permissions, true),
                (true, false) => {}
            }
        }
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.set.iter().chain(&self.remove).chain(&self.modify)
    }

    fn is_default(&self, entry: &Entry) -> bool {
        entry.default || self.arguments.default
    }
}

/// The entries in a file of the machine.
fn read<T: std::str::FromStr<Err = String>>(path: &Path) -> anyhow::Result<T> {
    let about = || path.display().to_string();
    let text = String::from_utf8(read_bytes(path)?).with_context(about)?;
    text.parse().map_err(anyhow::Error::msg).with_context(about)
}

/// A file of the machine, or standard input.
fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().read_to_end(&mut text).map(drop),
        _ => std::fs::read(path).map(|all| text = all),
    };
    read.with_context(|| path.display().to_string())?;
    Ok(text)
}

/// A list of a file, if it has such.
fn list(volume: &Volume, ino: Ino, name: &str) -> anyhow::Result<Option<List>> {
    match volume.get_attribute(ino, name.as_bytes()) {
        Ok(value) => Ok(Some(List::of_linux(&value)?)),
        Err(error) if error.errno() == errno::ENODATA => Ok(None),
        Err(error) => Err(error.into()),
    }
}
