//! The host as source or target of a copy.
//!
//! # Invariants
//! Below the paths of the caller, files are found by name in a directory that is open, and directories are opened
//! without following links. Metadata is set through a descriptor of the file.

use std::cell::OnceCell;
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use base::time::Time;
use format::inode::FileType;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RawDir, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use volume::NewFileType;

use super::CopyReason;
use super::ends::{Attributes, Contents, Events, Location, SourceEnd, Stat, TargetEnd};
use super::error::{Reasoned, number};
use crate::syscalls::{self, HostError, cannot, errno_of, path_of};

/// The host.
#[derive(Default)]
pub struct HostEnd {
    /// The umask of this process, when it is known.
    umask: OnceCell<u16>,
}

/// The umask of this process.
fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    field.and_then(|digits| u16::from_str_radix(digits.trim(), 8).ok()).unwrap_or_else(|| {
        // Without /proc, and before Linux 4.7, the umask can only be read by setting it: files that other threads
        // create at this moment get none.
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        umask.as_raw_mode() as u16 // nine bits
    })
}

/// A directory that was entered.
pub type Dir = OwnedFd;

fn dir(location: &Location<Dir>) -> BorrowedFd<'_> {
    location.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
}

fn no_follow(follow: bool) -> OFlags {
    if follow { OFlags::CLOEXEC } else { OFlags::CLOEXEC | OFlags::NOFOLLOW }
}

fn open(location: &Location<Dir>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    fs::openat(dir(location), location.name.as_slice(), flags, Mode::empty())
}

fn stat(stat: &fs::Stat) -> Reasoned<Stat> {
    let mode = stat.st_mode as u16; // type and permissions are its lower 16 bits
    Ok(Stat {
        id: (stat.st_dev, stat.st_ino),
        kind: FileType::from_mode(mode).ok_or(CopyReason::UnknownType)?,
        permissions: mode & 0o7777,
        links: stat.st_nlink,
        size: stat.st_size.unsigned_abs(),
        uid: stat.st_uid,
        gid: stat.st_gid,
        accessed: syscalls::accessed(stat),
        modified: syscalls::modified(stat),
        device: syscalls::device_of(stat),
    })
}

impl SourceEnd for HostEnd {
    type Dir = Dir;

    fn stat(&self, location: &Location<Dir>, follow: bool) -> Reasoned<Option<Stat>> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match fs::statat(dir(location), location.name.as_slice(), flags) {
            Ok(found) => stat(&found).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn enter(&self, location: &Location<Dir>, follow: bool, _: Events<'_>) -> Reasoned<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | no_follow(follow);
        Ok(open(location, flags).map_err(cannot("open it"))?)
    }

    fn list(&self, dir: &Dir) -> Reasoned<Vec<Vec<u8>>> {
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut names = Vec::new();
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(cannot("list it"))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    fn read_link(&self, location: &Location<Dir>) -> Reasoned<Vec<u8>> {
        let target = fs::readlinkat(dir(location), location.name.as_slice(), Vec::new());
        Ok(target.map_err(cannot("read the link"))?.into_bytes())
    }

    fn attributes(&self, location: &Location<Dir>, follow: bool, _: Events<'_>) -> Reasoned<Attributes> {
        let file = open(location, OFlags::PATH | no_follow(follow))?;
        let path = path_of(&file);
        let found = syscalls::attributes(
            |list| fs::listxattr(path.as_str(), list),
            |name, value| fs::getxattr(path.as_str(), name, value),
        );
        match found {
            // No /proc.
            Err(HostError { errno: Errno::NOENT, .. }) => Ok(Vec::new()),
            found => Ok(found?.readable),
        }
    }

    fn open(
        &self,
        location: &Location<Dir>,
        follow: bool,
        stat: &Stat,
        _: Events<'_>,
    ) -> Reasoned<Box<dyn Contents + '_>> {
        let is_regular = stat.kind == FileType::Regular;
        match stat.kind {
            FileType::Socket => return Err(CopyReason::IsSocket),
            FileType::Fifo if !is_unnamed(location)? => return Err(CopyReason::IsNamedPipe),
            _ => {}
        }
        // A file that replaced it must not block.
        let wait = if is_regular { OFlags::NONBLOCK } else { OFlags::empty() };
        let fd = open(location, OFlags::RDONLY | no_follow(follow) | wait).map_err(cannot("open it"))?;
        let now = fs::fstat(&fd)?;
        if (now.st_dev, now.st_ino) != stat.id {
            return Err(CopyReason::Replaced);
        }
        let has_holes = is_regular && syscalls::has_holes(&now);
        Ok(Box::new(OpenFile { fd, size: has_holes.then_some(now.st_size.unsigned_abs()) }))
    }
}

/// Whether a pipe is anonymous, such as `<(command)` in a shell, and so has a writer. A named pipe may never have one.
fn is_unnamed(location: &Location<Dir>) -> Reasoned<bool> {
    /// `PIPEFS_MAGIC` of `linux/magic.h`.
    const PIPES: i64 = 0x5049_5045;
    Ok(fs::fstatfs(&open(location, OFlags::PATH | OFlags::CLOEXEC)?)?.f_type == PIPES)
}

/// An open file.
struct OpenFile {
    fd: OwnedFd,
    /// Size when it was opened, if it can have holes.
    size: Option<u64>,
}

impl Contents for OpenFile {
    fn size(&self) -> Option<u64> {
        let now = fs::fstat(&self.fd).ok().map(|stat| stat.st_size.unsigned_abs());
        self.size.map(|size| now.unwrap_or(size))
    }

    fn next_run(&mut self, from: u64) -> Reasoned<Option<Range<u64>>> {
        let data = block::next_data(&self.fd, from, self.size.unwrap_or_default());
        Ok(data.map_err(|error| cannot("find its data")(errno_of(&error)))?)
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Reasoned<usize> {
        loop {
            let read = match self.size {
                Some(_) => rustix::io::pread(&self.fd, &mut *buffer, at),
                None => rustix::io::read(&self.fd, &mut *buffer),
            };
            match read {
                Err(Errno::INTR) => {}
                read => return Ok(read.map_err(cannot("read it"))?),
            }
        }
    }
}

impl TargetEnd for HostEnd {
    type Node<'t> = File;

    fn umask(&self) -> u16 {
        *self.umask.get_or_init(umask)
    }

    fn create(&self, location: &Location<Dir>, kind: NewFileType<'_>, mode: u16) -> Reasoned<File> {
        let (fd, name, mode) = (dir(location), location.name.as_slice(), Mode::from_raw_mode(mode.into()));
        let failed = |what| move |errno| CopyReason::Create { what, errno: number(errno) };
        match kind {
            NewFileType::Regular => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return match fs::openat(fd, name, flags, mode) {
                    Err(Errno::EXIST) => Err(CopyReason::DanglingLink),
                    created => Ok(created.map_err(failed("file"))?.into()),
                };
            }
            NewFileType::Directory => fs::mkdirat(fd, name, mode).map_err(failed("directory"))?,
            other => {
                let what = match other {
                    NewFileType::Symlink(_) => "link",
                    NewFileType::Fifo => "named pipe",
                    NewFileType::Socket => "socket",
                    _ => "device",
                };
                syscalls::make_node(fd, name, other, mode).map_err(failed(what))?;
            }
        }
        self.node(location)
    }

    fn overwrite(&self, location: &Location<Dir>) -> Reasoned<File> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(open(location, flags).map_err(cannot("write it"))?.into())
    }

    fn node(&self, location: &Location<Dir>) -> Reasoned<File> {
        Ok(syscalls::open_node(dir(location), &location.name)?.into())
    }

    fn write(&self, node: &File, at: u64, bytes: &[u8]) -> Reasoned<()> {
        let written = node.write_all_at(bytes, at);
        Ok(written.map_err(|error| cannot("write it")(errno_of(&error)))?)
    }

    fn set_len(&self, node: &File, size: u64) -> Reasoned<()> {
        Ok(fs::ftruncate(node, size).map_err(cannot("set its size"))?)
    }

    fn link(&self, existing: &Location<Dir>, new: &Location<Dir>) -> Reasoned<()> {
        let (from, to) = (existing.name.as_slice(), new.name.as_slice());
        let linked = fs::linkat(dir(existing), from, dir(new), to, AtFlags::empty());
        Ok(linked.map_err(cannot("create the hard link"))?)
    }

    fn unlink(&self, location: &Location<Dir>) -> Reasoned<()> {
        let removed = fs::unlinkat(dir(location), location.name.as_slice(), AtFlags::empty());
        Ok(removed.map_err(cannot("remove it"))?)
    }

    fn set_owner(&self, node: &File, uid: u32, gid: u32) -> Reasoned<bool> {
        let chown = |uid: Option<u32>| {
            fs::chownat(node, c"", uid.map(Uid::from_raw), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
        };
        match chown(Some(uid)) {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::INVAL) if !rustix::process::geteuid().is_root() => {
                // The user may still be a member of the group.
                let now = fs::fstat(node)?;
                Ok(chown(None).is_ok() && now.st_uid == uid)
            }
            Err(errno) => Err(cannot("set the owner")(errno).into()),
        }
    }

    fn set_mode(&self, node: &File, mode: u16) -> Reasoned<()> {
        let set = fs::chmod(path_of(node).as_str(), Mode::from_raw_mode(mode.into()));
        Ok(set.map_err(cannot("set the mode"))?)
    }

    fn set_times(&self, node: &File, accessed: Time, modified: Time) -> Reasoned<()> {
        Ok(syscalls::set_times(node, accessed, modified).map_err(cannot("set the times"))?)
    }

    fn set_attribute(&self, node: &File, name: &[u8], value: &[u8]) -> Reasoned<()> {
        let set = fs::setxattr(path_of(node).as_str(), name, value, XattrFlags::empty());
        set.map_err(attribute("set", name))
    }

    fn remove_attribute(&self, node: &File, name: &[u8]) -> Reasoned<()> {
        match fs::removexattr(path_of(node).as_str(), name) {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            removed => removed.map_err(attribute("remove", name)),
        }
    }
}

fn attribute(action: &'static str, name: &[u8]) -> impl FnOnce(Errno) -> CopyReason {
    move |errno| CopyReason::Attribute { action, name: name.to_vec(), errno: number(errno) }
}
