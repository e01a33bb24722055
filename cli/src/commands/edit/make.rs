//! `mkdir`, `touch`, `mknod`, `ln`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::{Args, ValueEnum};
use xebec::{DeviceNumber, NewFile, NewFileType, SetMetadata, Time, Volume, errno};

use super::mode::Mode;
use super::{Edit, at_path, for_each_path, literal_paths, parent_of_new, paths};
use crate::operands::NoMatch;
use crate::owners::NameOrId;

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
    uid: NameOrId,
    /// Group: an ID, or a name in /etc/group of the image.
    #[arg(long, value_name = "GROUP", default_value = "0")]
    gid: NameOrId,
}

/// IDs of owner and group.
#[derive(Clone, Copy, Debug)]
struct OwnerIds {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// Resolves the names.
    fn resolve(&self, volume: &Volume) -> anyhow::Result<OwnerIds> {
        Ok(OwnerIds { uid: self.uid.user(volume)?, gid: self.gid.group(volume)? })
    }
}

impl OwnerIds {
    /// A new file; the default mode is 777 or 666 with a umask of 022.
    fn new_file<'a>(&self, kind: NewFileType<'a>, mode: Option<&Mode>) -> NewFile<'a> {
        let directory = matches!(kind, NewFileType::Directory);
        let all = if directory { 0o777 } else { 0o666 };
        let (permissions, umask) = mode.map_or((all, 0o022), |mode| (mode.apply(all, directory), 0));
        NewFile { file_type: kind, permissions, umask, uid: self.uid, gid: self.gid, ..NewFile::regular() }
    }
}

impl Edit for Mkdir {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let owner = self.owner.resolve(volume)?;
        let new = owner.new_file(NewFileType::Directory, self.mode.as_ref());
        for_each_path(&literal_paths(&self.paths), report, |path| {
            if !self.parents {
                let (dir, name) = volume.resolve_parent(path)?;
                return volume.create(dir, name, &new).map(drop);
            }
            if volume.resolve_parent(path).is_err() {
                let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                let parent = owner.new_file(NewFileType::Directory, None);
                volume.create_dir_all(path.get(..slash).unwrap_or_default(), &parent)?;
            }
            create_unless_exists(volume, path, &new)
        });
        Ok(())
    }
}

/// Creates a directory unless it exists.
fn create_unless_exists(volume: &Volume, path: &[u8], new: &NewFile<'_>) -> xebec::Result<()> {
    let (dir, name) = volume.resolve_parent(path)?;
    match volume.create(dir, name, new) {
        Err(error) if error.errno() == errno::EEXIST => {
            let existing = volume.metadata(volume.resolve(path, true)?)?;
            if existing.file_type == format::inode::FileType::Directory { Ok(()) } else { Err(error) }
        }
        created => created.map(drop),
    }
}

/// Arguments of `touch`.
#[derive(Clone, Debug, Args)]
#[command(
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
    #[arg(short, long, value_name = "TIME", value_parser = crate::times::parse_date, allow_hyphen_values = true)]
    date: Option<Time>,
    /// Use the times of this file in the volume.
    #[arg(short, long, value_name = "PATH", conflicts_with = "date")]
    reference: Option<OsString>,
    /// Change symbolic links instead of their targets, and do not create files.
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Mode of new files (default: 644, or the default ACL of the parent).
    #[arg(short, long, value_name = "MODE")]
    mode: Option<Mode>,
    #[command(flatten)]
    owner: Owner,
}

impl Edit for Touch {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let owner = self.owner.resolve(volume)?;
        let new = owner.new_file(NewFileType::Regular, self.mode.as_ref());
        let times = self.times(volume)?;
        let paths = match self.no_create {
            true => paths(volume, &self.paths, &mut |error| {
                if !error.is::<NoMatch>() {
                    report(error);
                }
            }),
            false => literal_paths(&self.paths),
        };
        for_each_path(&paths, report, |path| {
            let id = match volume.resolve(path, !self.no_dereference) {
                // With -h, no file is created.
                Err(error) if error.errno() == errno::ENOENT && self.no_dereference => return Err(error),
                Err(error) if error.errno() == errno::ENOENT && self.no_create => return Ok(()),
                Err(error) if error.errno() == errno::ENOENT => {
                    let (dir, name) = parent_of_new(volume, path)?;
                    let created = volume.create(dir, name, &new)?;
                    if times.is_none() {
                        return Ok(());
                    }
                    created
                }
                found => found?,
            };
            let (accessed, modified) = times.unzip();
            let touched = times.is_none();
            volume.set_metadata(id, &SetMetadata { accessed, modified, touched, ..SetMetadata::default() })
        });
        Ok(())
    }
}

impl Touch {
    /// Access and modification time; `None` for the current time.
    fn times(&self, volume: &Volume) -> anyhow::Result<Option<(Time, Time)>> {
        let Some(reference) = self.reference.as_ref().map(|path| path.as_bytes()) else {
            return Ok(self.date.map(|date| (date, date)));
        };
        let file = volume.resolve(reference, !self.no_dereference).and_then(|id| volume.metadata(id));
        let file = file.map_err(at_path(reference))?;
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
    fn perform(&self, volume: &Volume, _: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let device = DeviceNumber { major: self.major.unwrap_or(0), minor: self.minor.unwrap_or(0) };
        let kind = match self.kind {
            NodeType::Block => NewFileType::BlockDevice(device),
            NodeType::Char => NewFileType::CharDevice(device),
            NodeType::Pipe => NewFileType::Fifo,
            NodeType::Socket => NewFileType::Socket,
        };
        let owner = self.owner.resolve(volume)?;
        let new = owner.new_file(kind, self.mode.as_ref());
        let path = self.path.as_bytes();
        let created = parent_of_new(volume, path).and_then(|(dir, name)| volume.create(dir, name, &new));
        created.map(drop).map_err(at_path(path))
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
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        let owner = self.owner.resolve(volume)?;
        let Some((link, operands)) = self.paths.split_last() else { return Ok(()) };
        let link = link.as_bytes();
        // The target of a symbolic link need not exist.
        let targets = match self.symbolic {
            true => literal_paths(operands),
            false => paths(volume, operands, report),
        };
        if operands.len().max(targets.len()) > 1 {
            super::rename::expect_directory(volume, link)?;
        }
        for target in &targets {
            self.link(volume, target, link, owner).unwrap_or_else(&mut *report);
        }
        Ok(())
    }
}

impl Ln {
    fn link(&self, volume: &Volume, target: &[u8], link: &[u8], owner: OwnerIds) -> anyhow::Result<()> {
        let (dir, name) =
            super::rename::destination(volume, link, target, !self.no_dereference).map_err(at_path(link))?;
        let existing = match self.symbolic {
            true => None,
            false => Some(volume.resolve(target, false).map_err(at_path(target))?),
        };
        let symlink = NewFile { uid: owner.uid, gid: owner.gid, ..NewFile::symlink(target) };
        let create = || match existing {
            Some(existing) => volume.link(existing, dir, name),
            None => volume.create(dir, name, &symlink).map(drop),
        };
        match create() {
            Err(error) if error.errno() == errno::EEXIST && self.force => {
                volume.unlink(dir, name).and_then(|()| create()).map_err(at_path(link))
            }
            created => created.map_err(at_path(link)),
        }
    }
}
