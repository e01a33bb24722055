//! Creates files on the host and sets their metadata.
//!
//! # Invariants
//! Every call creates, links or removes one component, checked by [`is_safe`](super::source::is_safe), relative to the
//! descriptor of a directory that this extraction has opened without following a link. Metadata is set through the
//! descriptor of the file itself. So neither an image nor a link that another user creates meanwhile leads outside of
//! the target directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::time::Time;
use format::inode::FileType;
use format::timestamp::Timestamp;
use read::Metadata;
use rustix::fs::{self, AtFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use volume::{DeviceNumber, NewFileType};

use super::counters::Counters;
use super::flags;
use super::source::FileInfo;
use crate::syscalls::{self, HostError, cannot, errno_of, path_of, timestamps};

/// A directory on the host.
#[derive(Debug)]
pub struct HostDirectory {
    pub fd: OwnedFd,
    /// Path below the target directory.
    pub path: Vec<u8>,
}

/// Privileges of the process, and options.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// The process may change owners.
    pub is_root: bool,
    /// Replace existing files.
    pub overwrite: bool,
}

impl CreateOptions {
    /// Options for this process.
    pub fn new(overwrite: bool) -> Self {
        Self { is_root: rustix::process::geteuid().is_root(), overwrite }
    }
}

type Result<T> = std::result::Result<T, Errno>;

/// Modes until a file is complete.
const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
const PRIVATE_DIRECTORY: Mode = Mode::from_raw_mode(0o700);

/// Creates a file, after removing an existing one if that is allowed.
fn replace<T>(
    dir: &HostDirectory,
    name: &[u8],
    options: CreateOptions,
    create: impl Fn() -> Result<T>,
) -> Result<T> {
    match create() {
        Err(Errno::EXIST) if options.overwrite => {
            fs::unlinkat(&dir.fd, name, AtFlags::empty())?;
            create()
        }
        created => created,
    }
}

/// Creates a directory and opens it. An existing one is used if overwriting is allowed; a symlink is replaced.
pub fn create_directory(dir: &HostDirectory, name: &[u8], options: CreateOptions) -> Result<OwnedFd> {
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&dir.fd, name, flags, Mode::empty())
    };
    match fs::mkdirat(&dir.fd, name, PRIVATE_DIRECTORY) {
        Err(Errno::EXIST) if options.overwrite => match open() {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                fs::unlinkat(&dir.fd, name, AtFlags::empty())?;
                fs::mkdirat(&dir.fd, name, PRIVATE_DIRECTORY)?;
                open()
            }
            opened => opened,
        },
        created => {
            created?;
            open()
        }
    }
}

/// Opens a directory of this extraction, to link files from it.
pub fn open_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::empty())
}

/// Creates an empty file and opens it for writing.
pub fn create_file(dir: &HostDirectory, name: &[u8], options: CreateOptions) -> Result<OwnedFd> {
    replace(dir, name, options, || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&dir.fd, name, flags, PRIVATE_FILE)
    })
}

/// Creates a symlink or special file, and sets its owner, attributes and times.
pub fn create_special(
    dir: &HostDirectory,
    name: &[u8],
    info: &FileInfo,
    options: CreateOptions,
    counters: &Counters,
) -> std::result::Result<(), HostError> {
    let metadata = &info.metadata;
    let action = match metadata.file_type {
        FileType::BlockDevice | FileType::CharDevice => "create the device",
        FileType::Symlink => "create the symbolic link",
        _ => "create the special file",
    };
    replace(dir, name, options, || create_node(dir, name, info)).map_err(cannot(action))?;
    complete_node(dir, name, info, options, counters)
}

fn complete_node(
    dir: &HostDirectory,
    name: &[u8],
    info: &FileInfo,
    options: CreateOptions,
    counters: &Counters,
) -> std::result::Result<(), HostError> {
    let metadata = &info.metadata;
    let node = open_node(dir, name, metadata).map_err(cannot("reopen it after its creation"))?;
    let stat = fs::fstat(&node).map_err(cannot("stat it"))?;
    let chown = |uid, gid| fs::chownat(&node, c"", uid, gid, AtFlags::EMPTY_PATH);
    let owned = set_owner(metadata, &stat, options, counters, chown).map_err(cannot("set the owner"))?;
    // No call sets attributes or a mode through an O_PATH descriptor; its name in /proc refers to the file itself, even
    // to a symlink.
    let path = path_of(&node);
    let set = |name: &[u8], value: &[u8]| fs::setxattr(path.as_str(), name, value, XattrFlags::empty());
    let attributes = set_xattrs(info, counters, set);
    if metadata.file_type != FileType::Symlink {
        match fs::chmod(path.as_str(), mode(metadata, owned)) {
            Err(Errno::NOENT) => counters.lose("modes of special files (no /proc?)"),
            set => set.map_err(cannot("set the mode"))?,
        }
    }
    let (accessed, modified) = times(metadata);
    syscalls::set_times(&node, accessed, modified).map_err(cannot("set the times"))?;
    check_times(node.as_fd(), metadata, counters).map_err(cannot("stat it"))?;
    flags::count_lost(metadata, counters);
    attributes
}

/// Opens a file that was just created, to set its metadata. Another user who may write to the directory can have
/// replaced it: a file of another type is refused.
fn open_node(dir: &HostDirectory, name: &[u8], metadata: &Metadata) -> Result<OwnedFd> {
    let node = syscalls::open_node(&dir.fd, name)?;
    let stat = fs::fstat(&node)?;
    let is_same = FileType::from_mode(stat.st_mode as u16) == Some(metadata.file_type); // the type is in the low bits
    let (major, minor) = metadata.device;
    let is_device = matches!(metadata.file_type, FileType::BlockDevice | FileType::CharDevice);
    match is_same && (!is_device || stat.st_rdev == fs::makedev(major, minor)) {
        true => Ok(node),
        false => Err(Errno::STALE),
    }
}

fn create_node(dir: &HostDirectory, name: &[u8], info: &FileInfo) -> Result<()> {
    let (major, minor) = info.metadata.device;
    let device = DeviceNumber { major, minor };
    let kind = match info.metadata.file_type {
        FileType::Symlink => NewFileType::Symlink(info.target.as_deref().unwrap_or_default()),
        FileType::Fifo => NewFileType::Fifo,
        FileType::Socket => NewFileType::Socket,
        FileType::CharDevice => NewFileType::CharDevice(device),
        FileType::BlockDevice => NewFileType::BlockDevice(device),
        FileType::Regular => NewFileType::Regular,
        FileType::Directory => NewFileType::Directory,
    };
    syscalls::make_node(&dir.fd, name, kind, PRIVATE_FILE)
}

/// Sets owner, attributes, mode, times and flags of an open file or directory, in this order: chown clears set-user-ID
/// bits and capabilities, attributes cannot be set on read-only files, all of them change times, and flags may forbid
/// all of them.
pub fn complete(
    fd: impl AsFd,
    info: &FileInfo,
    options: CreateOptions,
    counters: &Counters,
) -> std::result::Result<(), HostError> {
    let (fd, metadata) = (fd.as_fd(), &info.metadata);
    let stat = fs::fstat(fd).map_err(cannot("stat it"))?;
    let chown = |uid, gid| fs::fchown(fd, uid, gid);
    let owned = set_owner(metadata, &stat, options, counters, chown).map_err(cannot("set the owner"))?;
    let set = |name: &[u8], value: &[u8]| fs::fsetxattr(fd, name, value, XattrFlags::empty());
    let attributes = set_xattrs(info, counters, set);
    fs::fchmod(fd, mode(metadata, owned)).map_err(cannot("set the mode"))?;
    let (accessed, modified) = times(metadata);
    fs::futimens(fd, &timestamps(accessed, modified)).map_err(cannot("set the times"))?;
    check_times(fd, metadata, counters).map_err(cannot("stat it"))?;
    if metadata.file_type == FileType::Directory {
        flags::set_hints(fd, info, counters);
    }
    let flags = flags::set_flags(fd, metadata, counters);
    flags.map_err(|error| cannot("set the flags")(errno_of(&error)))?;
    attributes
}

/// Whether user and group of a file are those in the image.
#[derive(Clone, Copy, Debug)]
struct Owned {
    uid: bool,
    gid: bool,
}

/// Sets owner and group of a file. The current ones are read with stat: in a set-group-ID directory, the file has the
/// directory's group. An ordinary user may set any of their groups.
fn set_owner(
    metadata: &Metadata,
    stat: &fs::Stat,
    options: CreateOptions,
    counters: &Counters,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<()>,
) -> Result<Owned> {
    let mut owned = Owned { uid: metadata.uid == stat.st_uid, gid: metadata.gid == stat.st_gid };
    // -1 means "unchanged" to the system.
    let uid =
        (!owned.uid && options.is_root && metadata.uid != u32::MAX).then(|| Uid::from_raw(metadata.uid));
    let gid = (!owned.gid && metadata.gid != u32::MAX).then(|| Gid::from_raw(metadata.gid));
    if uid.is_some() || gid.is_some() {
        match chown(uid, gid) {
            Ok(()) => (owned.uid, owned.gid) = (owned.uid || uid.is_some(), owned.gid || gid.is_some()),
            Err(Errno::PERM) if !options.is_root => {}
            failed => {
                count_loss(failed, "owners", counters)?;
                return Ok(owned);
            }
        }
    }
    if !owned.uid || !owned.gid {
        counters.lose("owners (requires root)");
    }
    Ok(owned)
}

/// The mode. With another owner, set-user-ID and set-group-ID would grant unintended rights.
fn mode(metadata: &Metadata, owned: Owned) -> Mode {
    let mut bits = u32::from(metadata.permissions);
    if metadata.file_type != FileType::Directory {
        bits &= !(if owned.uid { 0 } else { 0o4000 });
        bits &= !(if owned.gid { 0 } else { 0o2000 });
    }
    Mode::from_raw_mode(bits)
}

/// Access and modification times.
fn times(metadata: &Metadata) -> (Time, Time) {
    let time = |time: Timestamp| Time { seconds: time.seconds, nanos: time.nanoseconds };
    (time(metadata.times.access), time(metadata.times.modify))
}

/// Counts times that the host file system cannot store. Times of 32 bits always fit.
fn check_times(fd: BorrowedFd<'_>, metadata: &Metadata, counters: &Counters) -> Result<()> {
    let (access, modify) = (metadata.times.access.seconds, metadata.times.modify.seconds);
    if i32::try_from(access).is_ok() && i32::try_from(modify).is_ok() {
        return Ok(());
    }
    let stat = fs::fstat(fd)?;
    if (stat.st_atime, stat.st_mtime) != (access, modify) {
        counters.lose("times (out of range of this file system)");
    }
    Ok(())
}

/// Counts metadata that the system does not allow here, which is not a failure.
fn count_loss(result: Result<()>, what: &str, counters: &Counters) -> Result<()> {
    match result {
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL)) => {
            counters.lose(&format!("{what} ({errno})"));
            Ok(())
        }
        other => other,
    }
}

/// Sets all attributes that can be set. The first for which the file system has no space is an error.
fn set_xattrs(
    info: &FileInfo,
    counters: &Counters,
    set: impl Fn(&[u8], &[u8]) -> Result<()>,
) -> std::result::Result<(), HostError> {
    let mut outcome = Ok(());
    for (name, value) in &info.xattrs {
        let namespace = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        let what = || format!("extended attributes {}.*", String::from_utf8_lossy(namespace));
        match set(name, value) {
            Ok(()) => {}
            Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => {
                counters.lose(&format!("{} ({errno}: no /proc?)", what()))
            }
            Err(errno) => {
                let set = count_loss(Err(errno), &what(), counters);
                outcome = outcome.and(set.map_err(cannot("set all extended attributes")));
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use base::Ino;

    use super::*;

    fn fifo() -> FileInfo {
        let metadata = Metadata {
            ino: Ino(131),
            generation: 0,
            file_type: FileType::Fifo,
            permissions: 0o777,
            links: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            project: 0,
            size: 0,
            sectors: 0,
            device: (0, 0),
            times: times_of_nothing(),
            xflags: 0,
        };
        FileInfo { metadata, target: None, xattrs: Vec::new(), hints: flags::ExtentHints::default() }
    }

    fn times_of_nothing() -> format::inode::InodeTimes {
        let time = Timestamp { seconds: 1, nanoseconds: 0 };
        format::inode::InodeTimes { access: time, modify: time, change: time, create: time }
    }

    /// Another user who may write to the directory replaces a new pipe by a link: `chmod` by name followed it, as root,
    /// to any file.
    #[test]
    fn a_file_that_replaces_a_special_file_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, b"").unwrap();
        std::fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let before = victim.metadata().unwrap();
        let fd = fs::open(folder.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let dir = HostDirectory { fd, path: Vec::new() };
        let (options, counters) = (CreateOptions::new(false), Counters::default());
        create_special(&dir, b"pipe", &fifo(), options, &counters).unwrap();
        assert_eq!(folder.path().join("pipe").symlink_metadata().unwrap().mode(), 0o010_777);
        for name in ["link", "other"] {
            match name {
                "link" => symlink(&victim, folder.path().join(name)).unwrap(),
                _ => std::fs::hard_link(&victim, folder.path().join(name)).unwrap(),
            }
            let before = victim.metadata().unwrap();
            let refused = complete_node(&dir, name.as_bytes(), &fifo(), options, &counters).unwrap_err();
            assert_eq!(refused.errno, Errno::STALE, "{name}");
            assert_eq!(victim.metadata().unwrap().ctime_nsec(), before.ctime_nsec());
        }
        let after = victim.metadata().unwrap();
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    }
}
