//! `mkdir`, `touch`, `mknod`, `ln`.

use std::ffi::OsString;

use base::errno;
use base::time::Time;
use clap::{ArgAction, Args, ValueEnum};
use xebec::{Device, Kind, New, SetMetadata, Volume};

use super::mode::Mode;
use super::{Edit, at, bytes, each_name, names, paths, place};
use crate::operands::NoMatch;
use crate::owners::Who;

/// Arguments of `mkdir`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec mkdir disk.xfs /etc\n  xebec mkdir -p -m 700 disk.xfs /root/.ssh")]
pub struct Mkdir {
    /// Directories to make.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Make missing parents too; a directory that exists is no error.
    #[arg(short, long)]
    parents: bool,
    /// Permissions, in octal or in letters (755, or what a default access control list says).
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Who owns them.
    #[command(flatten)]
    owner: Owner,
}

/// Owner and group of what is made.
#[derive(Clone, Debug, Args)]
pub struct Owner {
    /// Owner, by number or by the image's own /etc/passwd.
    #[arg(long, value_name = "USER", default_value = "0")]
    uid: Who,
    /// Group, by number or by the image's own /etc/group.
    #[arg(long, value_name = "GROUP", default_value = "0")]
    gid: Who,
}

/// The numbers of owner and group.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// What they are in a volume; where a name is not known, that is told.
    fn numbers(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) -> Option<Numbers> {
        let found = self.uid.user(volume).and_then(|uid| Ok(Numbers { uid, gid: self.gid.group(volume)? }));
        found.map_err(tell).ok()
    }
}

impl Numbers {
    /// A new file; where no mode is asked for, the usual one.
    fn of<'a>(&self, kind: Kind<'a>, mode: Option<&Mode>) -> New<'a> {
        let directory = matches!(kind, Kind::Directory);
        let all = if directory { 0o777 } else { 0o666 };
        let (permissions, umask) = mode.map_or((all, 0o022), |mode| (mode.apply(all, directory), 0));
        New { kind, permissions, umask, uid: self.uid, gid: self.gid, ..New::file() }
    }
}

impl Edit for Mkdir {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let Some(owner) = self.owner.numbers(volume, tell) else { return };
        let new = owner.of(Kind::Directory, self.mode.as_ref());
        each_name(&names(&self.paths), tell, |path| {
            if self.parents {
                let parents = owner.of(Kind::Directory, None);
                if let Ok((_, name)) = volume.resolve_parent(path) {
                    return make_in_existing(volume, path, name, &new);
                }
                let above = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                volume.create_dir_all(path.get(..above).unwrap_or_default(), &parents)?;
                let (_, name) = volume.resolve_parent(path)?;
                return make_in_existing(volume, path, name, &new);
            }
            let (dir, name) = volume.resolve_parent(path)?;
            volume.create(dir, name, &new).map(drop)
        });
    }
}

/// Makes a directory unless there is one.
fn make_in_existing(volume: &Volume, path: &[u8], name: &[u8], new: &New<'_>) -> xebec::Result<()> {
    let (dir, _) = volume.resolve_parent(path)?;
    match volume.create(dir, name, new) {
        Err(error) if error.errno() == errno::EEXIST => {
            let there = volume.metadata(volume.resolve(path, true)?)?;
            if there.file_type == format::inode::FileType::Directory { Ok(()) } else { Err(error) }
        }
        made => made.map(drop),
    }
}

/// Arguments of `touch`.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  xebec touch disk.xfs /etc/hostname\n  xebec touch -d @0 disk.xfs /etc/hostname\n  \
    xebec touch -d '2 days ago' disk.xfs /etc/hostname\n  \
    xebec touch -d '2026-11-21 16:30:00.5 +0200' disk.xfs /etc/hostname"
)]
pub struct Touch {
    /// Files to make, or to stamp if they exist.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Make no files; patterns are expanded then.
    #[arg(short = 'c', long)]
    no_create: bool,
    /// This time instead of now, as GNU touch takes it: a date, @SECONDS, or words; local time unless it has a zone.
    #[arg(short, long, value_name = "TIME", value_parser = crate::times::parse_moment, allow_hyphen_values = true)]
    date: Option<Time>,
    /// The times of this file of the volume instead of now.
    #[arg(short, long, value_name = "PATH", conflicts_with = "date")]
    reference: Option<OsString>,
    /// Stamp a symbolic link itself, not what it leads to; make no files.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Permissions of files that are made (644, or what a default access control list says).
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Who owns them.
    #[command(flatten)]
    owner: Owner,
}

impl Edit for Touch {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let Some(owner) = self.owner.numbers(volume, tell) else { return };
        let new = owner.of(Kind::File, self.mode.as_ref());
        let times = match self.times(volume) {
            Ok(times) => times,
            Err(error) => return tell(error),
        };
        let paths = match self.no_create {
            true => paths(volume, &self.paths, &mut |error| {
                if !error.is::<NoMatch>() {
                    tell(error);
                }
            }),
            false => names(&self.paths),
        };
        each_name(&paths, tell, |path| {
            let ino = match volume.resolve(path, !self.no_dereference) {
                // A symbolic link itself is not made.
                Err(error) if error.errno() == errno::ENOENT && self.no_dereference => return Err(error),
                Err(error) if error.errno() == errno::ENOENT && self.no_create => return Ok(()),
                Err(error) if error.errno() == errno::ENOENT => {
                    let (dir, name) = place(volume, path)?;
                    let made = volume.create(dir, name, &new)?;
                    if times.is_none() {
                        return Ok(());
                    }
                    made
                }
                found => found?,
            };
            let (accessed, modified) = times.unzip();
            let touched = times.is_none();
            volume.set_metadata(ino, &SetMetadata { accessed, modified, touched, ..SetMetadata::default() })
        });
    }
}

impl Touch {
    /// Access and modification time, unless they are now.
    fn times(&self, volume: &Volume) -> anyhow::Result<Option<(Time, Time)>> {
        let Some(reference) = self.reference.as_ref().map(|path| bytes(path)) else {
            return Ok(self.date.map(|date| (date, date)));
        };
        let file = volume.resolve(reference, !self.no_dereference).and_then(|ino| volume.metadata(ino));
        let file = file.map_err(at(reference))?;
        Ok(Some((file.accessed, file.modified)))
    }
}

/// What `mknod` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Special {
    /// A block device.
    #[value(name = "b")]
    Block,
    /// A character device.
    #[value(name = "c", alias = "u")]
    Char,
    /// A named pipe.
    #[value(name = "p")]
    Pipe,
    /// A socket.
    #[value(name = "s")]
    Socket,
}

/// Arguments of `mknod`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  xebec mknod disk.xfs /dev/null c 1 3\n  xebec mknod -m 600 disk.xfs /run/pipe p"
)]
pub struct Mknod {
    /// What to make.
    path: OsString,
    /// Its type.
    #[arg(value_enum)]
    kind: Special,
    /// Major number of a device.
    #[arg(required_if_eq_any = [("kind", "b"), ("kind", "c")])]
    major: Option<u32>,
    /// Minor number of a device.
    #[arg(required_if_eq_any = [("kind", "b"), ("kind", "c")])]
    minor: Option<u32>,
    /// Permissions (644, or what a default access control list says).
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Who owns it.
    #[command(flatten)]
    owner: Owner,
}

impl Edit for Mknod {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let device = Device { major: self.major.unwrap_or(0), minor: self.minor.unwrap_or(0) };
        let kind = match self.kind {
            Special::Block => Kind::BlockDevice(device),
            Special::Char => Kind::CharDevice(device),
            Special::Pipe => Kind::Fifo,
            Special::Socket => Kind::Socket,
        };
        let Some(owner) = self.owner.numbers(volume, tell) else { return };
        let new = owner.of(kind, self.mode.as_ref());
        each_name(&[bytes(&self.path)], tell, |path| {
            let (dir, name) = place(volume, path)?;
            volume.create(dir, name, &new).map(drop)
        });
    }
}

/// Arguments of `ln`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec ln disk.xfs /etc/motd /motd\n  \
    xebec ln -s disk.xfs ../usr/share/zoneinfo/UTC /etc/localtime")]
pub struct Ln {
    /// Files that exist, or with -s any texts; and at the end the new name, or a directory to put names in.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Make a symbolic link.
    #[arg(short, long)]
    symbolic: bool,
    /// Remove what has the new name, unless it is a directory.
    #[arg(short, long)]
    force: bool,
    /// A new name that is a symbolic link to a directory is a name, not that directory.
    #[arg(short = 'n', long)]
    no_dereference: bool,
    /// Who owns a symbolic link.
    #[command(flatten)]
    owner: Owner,
}

impl Edit for Ln {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        let Some(owner) = self.owner.numbers(volume, tell) else { return };
        let Some((link, operands)) = self.paths.split_last() else { return };
        let link = bytes(link);
        // The text of a symbolic link need not name anything.
        let targets = match self.symbolic {
            true => names(operands),
            false => paths(volume, operands, tell),
        };
        let several = operands.len().max(targets.len()) > 1;
        if let Err(error) = if several { super::move_::expect_directory(volume, link) } else { Ok(()) } {
            return tell(error);
        }
        for target in &targets {
            if let Err(error) = self.link(volume, target, link, owner) {
                tell(error);
            }
        }
    }
}

impl Ln {
    fn link(&self, volume: &Volume, target: &[u8], link: &[u8], owner: Numbers) -> anyhow::Result<()> {
        let (dir, name) =
            super::move_::destination(volume, link, target, !self.no_dereference).map_err(at(link))?;
        let existing = match self.symbolic {
            true => None,
            false => Some(volume.resolve(target, false).map_err(at(target))?),
        };
        let make = || {
            if let Some(existing) = existing {
                volume.link(existing, dir, name)
            } else {
                volume
                    .create(dir, name, &New { uid: owner.uid, gid: owner.gid, ..New::symlink(target) })
                    .map(drop)
            }
        };
        match make() {
            Err(error) if error.errno() == errno::EEXIST && self.force => {
                volume.unlink(dir, name).and_then(|()| make()).map_err(at(link))
            }
            made => made.map_err(at(link)),
        }
    }
}
