//! The host as source or target of `cp`.
//!
//! # Invariants
//! Below operands, files are found by name in a directory that is open, and directories are opened without following
//! links. Metadata is set through a descriptor of the file.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, bail};
use base::time::Time;
use format::inode::FileType;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use xebec::{DeviceNumber, NewFileType};

use crate::limits::allow_many_descriptors;

use super::traits::{Attributes, Contents, CopySource, CopyTarget, Location, Stat};

/// The host.
pub struct Host {
    umask: u16,
}

impl Host {
    /// With the umask of this process.
    pub fn new() -> Self {
        // The umask can only be read by setting it. No files are created in between.
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        allow_many_descriptors();
        Self { umask: umask.as_raw_mode() as u16 } // nine bits
    }
}

/// A directory that was entered.
pub type Dir = OwnedFd;

fn dir(location: &Location<Dir>) -> BorrowedFd<'_> {
    location.dir.as_ref().map_or(CWD, |dir| dir.as_fd())
}

fn no_follow(follow: bool) -> OFlags {
    if follow { OFlags::CLOEXEC } else { OFlags::CLOEXEC | OFlags::NOFOLLOW }
}

fn stat(stat: &fs::Stat) -> Result<Stat> {
    let time = |seconds, nanos: u64| Time { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
    let mode = stat.st_mode as u16; // type and permissions are its lower 16 bits
    let Some(kind) = FileType::from_mode(mode) else { bail!("has a file type that XFS does not support") };
    Ok(Stat {
        id: (stat.st_dev, stat.st_ino),
        kind,
        permissions: mode & 0o7777,
        links: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        accessed: time(stat.st_atime, stat.st_atime_nsec.unsigned_abs()),
        modified: time(stat.st_mtime, stat.st_mtime_nsec.unsigned_abs()),
        device: DeviceNumber { major: fs::major(stat.st_rdev), minor: fs::minor(stat.st_rdev) },
    })
}

/// Path of a descriptor in /proc: it names the file itself even if that is a link, for calls that do not accept an
/// O_PATH descriptor.
fn named(node: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", node.as_raw_fd())
}

impl CopySource for Host {
    type Dir = Dir;

    fn stat(&self, location: &Location<Dir>, follow: bool) -> Result<Option<Stat>> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match fs::statat(dir(location), location.name.as_slice(), flags) {
            Ok(found) => stat(&found).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn enter(&self, location: &Location<Dir>, follow: bool) -> Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | no_follow(follow);
        fs::openat(dir(location), location.name.as_slice(), flags, Mode::empty()).context("cannot open it")
    }

    fn list(&self, dir: &Dir) -> Result<Vec<Vec<u8>>> {
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut names = Vec::new();
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.context("cannot list it")?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    fn read_link(&self, location: &Location<Dir>) -> Result<Vec<u8>> {
        let target = fs::readlinkat(dir(location), location.name.as_slice(), Vec::new());
        Ok(target.context("cannot read the link")?.into_bytes())
    }

    fn attributes(&self, location: &Location<Dir>, follow: bool) -> Result<Attributes> {
        /// Maximum size of a value, and of all names.
        const MOST: usize = 64 << 10;
        let file = fs::openat(
            dir(location),
            location.name.as_slice(),
            OFlags::PATH | no_follow(follow),
            Mode::empty(),
        )?;
        let path = named(&file);
        // With an empty buffer, the call would return 0 in any case.
        match fs::listxattr(path.as_str(), &mut [0; 64][..]) {
            // No /proc, a file system without attributes, or the usual file without any.
            Err(Errno::NOTSUP | Errno::NOENT) | Ok(0) => return Ok(Vec::new()),
            _ => {}
        }
        let (mut names, mut found) = (vec![0; MOST], Vec::new());
        let listed = fs::listxattr(path.as_str(), names.as_mut_slice());
        let length = listed.context("cannot list its extended attributes")?;
        let mut value = vec![0; MOST];
        let names = names.get(..length).unwrap_or_default();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match fs::getxattr(path.as_str(), name, value.as_mut_slice()) {
                Ok(length) => found.push((name.to_vec(), value.get(..length).unwrap_or_default().to_vec())),
                // It was removed, or this user may not read it.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => {}
                Err(errno) => return Err(errno).context("cannot read its extended attributes"),
            }
        }
        Ok(found)
    }

    fn open(&self, location: &Location<Dir>, follow: bool, stat: &Stat) -> Result<Box<dyn Contents + '_>> {
        let is_regular = stat.kind == FileType::Regular;
        match stat.kind {
            FileType::Socket => bail!("is a socket (-r not specified)"),
            FileType::Fifo if !is_unnamed(location)? => {
                bail!("is a named pipe (-r not specified; to copy data from it: `xebec write` < PIPE)")
            }
            _ => {}
        }
        // A file that replaced it must not block.
        let wait = if is_regular { OFlags::NONBLOCK } else { OFlags::empty() };
        let flags = OFlags::RDONLY | no_follow(follow) | wait;
        let fd = fs::openat(dir(location), location.name.as_slice(), flags, Mode::empty())
            .context("cannot open it")?;
        let now = fs::fstat(&fd)?;
        if (now.st_dev, now.st_ino) != stat.id {
            bail!("was replaced during the copy");
        }
        let size = now.st_size.unsigned_abs();
        let has_holes = is_regular && now.st_blocks.unsigned_abs() * 512 < size;
        Ok(Box::new(OpenFile { fd, size: has_holes.then_some(size) }))
    }
}

/// Adds a hint to an error of creating a file.
fn in_a_directory(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(&Errno::NOENT) => error.context("no such directory"),
        Some(&Errno::PERM) => error.context("requires root"),
        _ => error,
    }
}

/// Whether a pipe is anonymous, such as `<(command)` in a shell, and so has a writer. A named pipe may never have one.
fn is_unnamed(location: &Location<Dir>) -> Result<bool> {
    /// `PIPEFS_MAGIC` of `linux/magic.h`.
    const PIPES: i64 = 0x5049_5045;
    let pipe =
        fs::openat(dir(location), location.name.as_slice(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fs::fstatfs(&pipe)?.f_type == PIPES)
}

/// An open file.
struct OpenFile {
    fd: OwnedFd,
    /// Size, if it can have holes.
    size: Option<u64>,
}

impl Contents for OpenFile {
    fn size(&self) -> Option<u64> {
        self.size
    }

    fn next_run(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let start = match fs::seek(&self.fd, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(errno).context("cannot find its data"),
        };
        let end = fs::seek(&self.fd, SeekFrom::Hole(start)).context("cannot find its holes")?;
        Ok((start < end).then_some(start..end))
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let read = match self.size {
                Some(_) => rustix::io::pread(&self.fd, &mut *buffer, at),
                None => rustix::io::read(&self.fd, &mut *buffer),
            };
            match read {
                Err(Errno::INTR) => {}
                read => return read.context("cannot read it"),
            }
        }
    }
}

impl CopyTarget for Host {
    type Node<'t> = OwnedFd;

    fn umask(&self) -> u16 {
        self.umask
    }

    fn create(&self, location: &Location<Dir>, kind: NewFileType<'_>, mode: u16) -> Result<OwnedFd> {
        let (fd, name, mode) = (dir(location), location.name.as_slice(), Mode::from_raw_mode(mode.into()));
        let node = |kind, device: DeviceNumber| {
            fs::mknodat(fd, name, kind, mode, fs::makedev(device.major, device.minor))
        };
        let none = DeviceNumber { major: 0, minor: 0 };
        let created = match kind {
            NewFileType::Regular => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return match fs::openat(fd, name, flags, mode) {
                    Err(Errno::EXIST) => bail!("not writing through a dangling symbolic link"),
                    created => created.context("cannot create the file").map_err(in_a_directory),
                };
            }
            NewFileType::Directory => fs::mkdirat(fd, name, mode).context("cannot create the directory"),
            NewFileType::Symlink(target) => fs::symlinkat(target, fd, name).context("cannot create the link"),
            NewFileType::CharDevice(device) => {
                node(fs::FileType::CharacterDevice, device).context("cannot create the device")
            }
            NewFileType::BlockDevice(device) => {
                node(fs::FileType::BlockDevice, device).context("cannot create the device")
            }
            NewFileType::Fifo => node(fs::FileType::Fifo, none).context("cannot create the named pipe"),
            NewFileType::Socket => node(fs::FileType::Socket, none).context("cannot create the socket"),
        };
        created.map_err(in_a_directory)?;
        self.node(location)
    }

    fn overwrite(&self, location: &Location<Dir>) -> Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK | OFlags::CLOEXEC;
        fs::openat(dir(location), location.name.as_slice(), flags, Mode::empty()).context("cannot write it")
    }

    fn node(&self, location: &Location<Dir>) -> Result<OwnedFd> {
        Ok(fs::openat(
            dir(location),
            location.name.as_slice(),
            OFlags::PATH | no_follow(false),
            Mode::empty(),
        )?)
    }

    fn write(&self, node: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let written = match rustix::io::pwrite(node, bytes, at) {
                Err(Errno::INTR) => continue,
                written => written.context("cannot write it")?,
            };
            at += written as u64;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn set_len(&self, node: &OwnedFd, size: u64) -> Result<()> {
        fs::ftruncate(node, size).context("cannot set its size")
    }

    fn link(&self, existing: &Location<Dir>, new: &Location<Dir>) -> Result<()> {
        let (from, to) = (existing.name.as_slice(), new.name.as_slice());
        fs::linkat(dir(existing), from, dir(new), to, AtFlags::empty()).context("cannot create the hard link")
    }

    fn unlink(&self, location: &Location<Dir>) -> Result<()> {
        fs::unlinkat(dir(location), location.name.as_slice(), AtFlags::empty()).context("cannot remove it")
    }

    fn set_owner(&self, node: &OwnedFd, uid: u32, gid: u32) -> Result<bool> {
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
            Err(errno) => Err(errno).context("cannot set the owner"),
        }
    }

    fn set_mode(&self, node: &OwnedFd, mode: u16) -> Result<()> {
        fs::chmod(named(node).as_str(), Mode::from_raw_mode(mode.into())).context("cannot set the mode")
    }

    fn set_times(&self, node: &OwnedFd, accessed: Time, modified: Time) -> Result<()> {
        let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
        let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
        let set = match fs::utimensat(node, c"", &times, AtFlags::EMPTY_PATH) {
            // Before Linux 5.8 the call does not accept such a descriptor.
            Err(Errno::INVAL) => fs::utimensat(CWD, named(node).as_str(), &times, AtFlags::empty()),
            set => set,
        };
        set.context("cannot set the times")
    }

    fn set_attribute(&self, node: &OwnedFd, name: &[u8], value: &[u8]) -> Result<()> {
        let set = fs::setxattr(named(node).as_str(), name, value, XattrFlags::empty());
        set.with_context(|| format!("cannot set the attribute {}", crate::names::quoted(name)))
    }

    fn remove_attribute(&self, node: &OwnedFd, name: &[u8]) -> Result<()> {
        match fs::removexattr(named(node).as_str(), name) {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            removed => {
                removed.with_context(|| format!("cannot remove the attribute {}", crate::names::quoted(name)))
            }
        }
    }
}
