//! `mkdir`, `touch`, `mknod`, `ln`.

use std::ffi::OsString;

use base::errno;
use base::time::Time;
use clap::{ArgAction, Args, ValueEnum};
use xebec::{DeviceNumber, NewFile, NewFileType, SetMetadata, Volume};

use super::mode::Mode;
use super::{Edit, at, bytes, each_name, names, paths, place};
use crate::operands::NoMatch;
use crate::owners::Who;

/// Arguments of `mkdir`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec mkdir disk.xfs /etc\n  xebec mkdir -p -m 700 disk.xfs /root/.ssh")]
pub struct Mkdir {
    /// Directories to create.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Create parent directories as needed; do not fail if a directory exists.
    #[arg(short, long)]
    parents: bool,
    /// File mode, as in chmod (default: 755, or the default ACL of the parent).
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    #[command(flatten)]
    owner: Owner,
}

/// Owner and group of new files.
#[derive(Clone, Debug, Args)]
pub struct Owner {
    /// Owner: an ID, or a name in /etc/passwd of the image.
    #[arg(long, value_name = "USER", default_value = "0")]
    uid: Who,
    /// Group: an ID, or a name in /etc/group of the image.
    #[arg(long, value_name = "GROUP", default_value = "0")]
    gid: Who,
}

/// IDs of owner and group.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// Resolves the names; reports unknown ones.
    fn numbers(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> Option<Numbers> {
        let found = self.uid.user(volume).and_then(|uid| Ok(Numbers { uid, gid: self.gid.group(volume)? }));
        found.map_err(report).ok()
    }
}

impl Numbers {
    /// A new file; the default mode is 777 or 666 with a umask of 022.
    fn of<'a>(&self, kind: NewFileType<'a>, mode: Option<&Mode>) -> NewFile<'a> {
        let directory = matches!(kind, NewFileType::Directory);
        let all = if directory { 0o777 } else { 0o666 };
        let (permissions, umask) = mode.map_or((all, 0o022), |mode| (mode.apply(all, directory), 0));
        NewFile { file_type: kind, permissions, umask, uid: self.uid, gid: self.gid, ..NewFile::regular() }
    }
}

impl Edit for Mkdir {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) {
        let Some(owner) = self.owner.numbers(volume, report) else { return };
        let new = owner.of(NewFileType::Directory, self.mode.as_ref());
        each_name(&names(&self.paths), report, |path| {
            if self.parents {
                let parents = owner.of(NewFileType::Directory, None);
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

/// Creates a directory unless it exists.
fn make_in_existing(volume: &Volume, path: &[u8], name: &[u8], new: &NewFile<'_>) -> xebec::Result<()> {
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
    /// Files to create or to update.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Do not create files, and expand patterns.
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Use this time instead of the current one, as in GNU touch: a date, @SECONDS, or a relative time.
    #[arg(short, long, value_name = "TIME", value_parser = crate::times::parse_moment, allow_hyphen_values = true)]
    date: Option<Time>,
    /// Use the times of this file in the volume.
    #[arg(short, long, value_name = "PATH", conflicts_with = "date")]
    reference: Option<OsString>,
    /// Change symbolic links instead of their targets, and do not create files.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Mode of new files (default: 644, or the default ACL of the parent).
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    #[command(flatten)]
    owner: Owner,
}

impl Edit for Touch {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) {
        let Some(owner) = self.owner.numbers(volume, report) else { return };
        let new = owner.of(NewFileType::Regular, self.mode.as_ref());
        let times = match self.times(volume) {
            Ok(times) => times,
            Err(error) => return report(error),
        };
        let paths = match self.no_create {
            true => paths(volume, &self.paths, &mut |error| {
                if !error.is::<NoMatch>() {
                    report(error);
                }
            }),
            false => names(&self.paths),
        };
        each_name(&paths, report, |path| {
            let ino = match volume.resolve(path, !self.no_dereference) {
                // With -h, no file is created.
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
    /// Access and modification time; `None` for the current time.
    fn times(&self, volume: &Volume) -> anyhow::Result<Option<(Time, Time)>> {
        let Some(reference) = self.reference.as_ref().map(|path| bytes(path)) else {
            return Ok(self.date.map(|date| (date, date)));
        };
        let file = volume.resolve(reference, !self.no_dereference).and_then(|ino| volume.metadata(ino));
        let file = file.map_err(at(reference))?;
        Ok(Some((file.accessed, file.modified)))
    }
}

/// File type of `mknod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NodeType {
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
    /// File to create.
    path: OsString,
    /// File type.
    #[arg(value_enum)]
    kind: NodeType,
    /// Major number of a device.
    #[arg(required_if_eq_any = [("kind", "b"), ("kind", "c")])]
    major: Option<u32>,
    /// Minor number of a device.
    #[arg(required_if_eq_any = [("kind", "b"), ("kind", "c")])]
    minor: Option<u32>,
    /// Mode (default: 644, or the default ACL of the parent).
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    #[command(flatten)]
    owner: Owner,
}

impl Edit for Mknod {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) {
        let device = DeviceNumber { major: self.major.unwrap_or(0), minor: self.minor.unwrap_or(0) };
        let kind = match self.kind {
            NodeType::Block => NewFileType::BlockDevice(device),
            NodeType::Char => NewFileType::CharDevice(device),
            NodeType::Pipe => NewFileType::Fifo,
            NodeType::Socket => NewFileType::Socket,
        };
        let Some(owner) = self.owner.numbers(volume, report) else { return };
        let new = owner.of(kind, self.mode.as_ref());
        each_name(&[bytes(&self.path)], report, |path| {
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
    /// Existing files, or any text with -s; and the name of the link, or a directory for the links.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Create symbolic links.
    #[arg(short, long)]
    symbolic: bool,
    /// Remove existing files, except directories.
    #[arg(short, long)]
    force: bool,
    /// Treat the link name as a normal file if it is a symbolic link to a directory.
    #[arg(short = 'n', long)]
    no_dereference: bool,
    #[command(flatten)]
    owner: Owner,
}

impl Edit for Ln {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) {
        let Some(owner) = self.owner.numbers(volume, report) else { return };
        let Some((link, operands)) = self.paths.split_last() else { return };
        let link = bytes(link);
        // The target of a symbolic link need not exist.
        let targets = match self.symbolic {
            true => names(operands),
            false => paths(volume, operands, report),
        };
        let several = operands.len().max(targets.len()) > 1;
        if let Err(error) = if several { super::rename::expect_directory(volume, link) } else { Ok(()) } {
            return report(error);
        }
        for target in &targets {
            if let Err(error) = self.link(volume, target, link, owner) {
                report(error);
            }
        }
    }
}

impl Ln {
    fn link(&self, volume: &Volume, target: &[u8], link: &[u8], owner: Numbers) -> anyhow::Result<()> {
        let (dir, name) =
            super::rename::destination(volume, link, target, !self.no_dereference).map_err(at(link))?;
        let existing = match self.symbolic {
            true => None,
            false => Some(volume.resolve(target, false).map_err(at(target))?),
        };
        let make = || {
            if let Some(existing) = existing {
                volume.link(existing, dir, name)
            } else {
                volume
                    .create(
                        dir,
                        name,
                        &NewFile { uid: owner.uid, gid: owner.gid, ..NewFile::symlink(target) },
                    )
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
