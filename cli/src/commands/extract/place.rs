//! Places on this machine, and what can be made there.
//!
//! # Invariants
//! Every call names one component, checked by [`is_safe`](super::source::is_safe), below the descriptor of a
//! directory that this run has opened without following a link, and makes, links or removes that name. What a file gets
//! afterwards, it gets by its own descriptor. So nothing that an image says, and no link that anybody puts there
//! meanwhile, leads outside of the directory that the user named.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use format::inode::FileType;
use format::timestamp::Timestamp;
use read::Metadata;
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::flags;
use super::progress::Progress;
use super::source::Facts;

/// A directory on this machine.
#[derive(Debug)]
pub struct Place {
    /// Its descriptor.
    pub fd: OwnedFd,
    /// Its path below the target, as the image has it: for messages, and to find it again.
    pub path: Vec<u8>,
}

/// What this process may do, and what it was told to.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// Owners can be given.
    pub is_root: bool,
    /// What exists already is replaced.
    pub overwrite: bool,
}

impl Rights {
    /// Of this process.
    pub fn new(overwrite: bool) -> Self {
        Self { is_root: rustix::process::geteuid().is_root(), overwrite }
    }
}

type Result<T> = std::result::Result<T, Errno>;

/// A call on this machine that failed.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// What it was to do: the end of a sentence that begins with "cannot".
    pub what: &'static str,
    /// Why not.
    pub errno: Errno,
}

/// Turns the error of a call into one that says what it was to do.
fn to(what: &'static str) -> impl Fn(Errno) -> Refused {
    move |errno| Refused { what, errno }
}

/// Nothing more than the owner may do, until all of a file is there.
const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
const PRIVATE_DIRECTORY: Mode = Mode::from_raw_mode(0o700);

/// Makes something, after removing what was there if that is wanted.
fn replace<T>(place: &Place, name: &[u8], rights: Rights, make: impl Fn() -> Result<T>) -> Result<T> {
    match make() {
        Err(Errno::EXIST) if rights.overwrite => {
            fs::unlinkat(&place.fd, name, AtFlags::empty())?;
            make()
        }
        made => made,
    }
}

/// Makes a directory and opens it. One that is there already is taken where overwriting is allowed; a link to one is
/// replaced.
pub fn make_directory(place: &Place, name: &[u8], rights: Rights) -> Result<OwnedFd> {
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&place.fd, name, flags, Mode::empty())
    };
    match fs::mkdirat(&place.fd, name, PRIVATE_DIRECTORY) {
        Err(Errno::EXIST) if rights.overwrite => match open() {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                fs::unlinkat(&place.fd, name, AtFlags::empty())?;
                fs::mkdirat(&place.fd, name, PRIVATE_DIRECTORY)?;
                open()
            }
            opened => opened,
        },
        made => {
            made?;
            open()
        }
    }
}

/// Opens a directory that this run has made, for naming files in it.
pub fn open_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::empty())
}

/// Makes an empty file and opens it for writing.
pub fn make_file(place: &Place, name: &[u8], rights: Rights) -> Result<OwnedFd> {
    replace(place, name, rights, || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&place.fd, name, flags, PRIVATE_FILE)
    })
}

/// Makes whatever is no file and no directory, and gives it its owner, attributes and times.
pub fn make_special(
    place: &Place,
    name: &[u8],
    facts: &Facts,
    rights: Rights,
    progress: &Progress,
) -> std::result::Result<(), Refused> {
    let metadata = &facts.metadata;
    let what = match metadata.file_type {
        FileType::BlockDevice | FileType::CharDevice => "make the device",
        FileType::Symlink => "make the symbolic link",
        _ => "make the special file",
    };
    replace(place, name, rights, || make_node(place, name, facts)).map_err(to(what))?;
    complete_node(place, name, facts, rights, progress)
}

fn complete_node(
    place: &Place,
    name: &[u8],
    facts: &Facts,
    rights: Rights,
    progress: &Progress,
) -> std::result::Result<(), Refused> {
    let metadata = &facts.metadata;
    let node = open_node(place, name, metadata).map_err(to("find again what was made"))?;
    let stat = fs::fstat(&node).map_err(to("look at what was made"))?;
    let chown = |uid, gid| fs::chownat(&node, c"", uid, gid, AtFlags::EMPTY_PATH);
    let owned = give_owner(metadata, &stat, rights, progress, chown).map_err(to("set the owner"))?;
    // No call sets attributes or a mode by such a descriptor; the kernel's own name for it leads to the file itself,
    // even where that is a link.
    let path = format!("/proc/self/fd/{}", node.as_raw_fd());
    let set = |name: &[u8], value: &[u8]| fs::setxattr(path.as_str(), name, value, XattrFlags::empty());
    let attributes = set_xattrs(facts, progress, set);
    if metadata.file_type != FileType::Symlink {
        match fs::chmod(path.as_str(), mode(metadata, owned)) {
            Err(Errno::NOENT) => progress.lose("modes of special files (no /proc?)"),
            set => set.map_err(to("set the mode"))?,
        }
    }
    let timed = match fs::utimensat(&node, c"", &times(metadata), AtFlags::EMPTY_PATH) {
        // Before Linux 5.8 the call takes no descriptor of this kind.
        Err(Errno::INVAL) => fs::utimensat(fs::CWD, path.as_str(), &times(metadata), AtFlags::empty()),
        done => done,
    };
    timed.map_err(to("set the times"))?;
    expect_times(node.as_fd(), metadata, progress).map_err(to("look at the times"))?;
    flags::lose(metadata, progress);
    attributes
}

/// A descriptor of a file that was made a moment ago, for what is done to it. Somebody who may write in the directory
/// can have put another there: what is of another kind is refused.
fn open_node(place: &Place, name: &[u8], metadata: &Metadata) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = fs::openat(&place.fd, name, flags, Mode::empty())?;
    let stat = fs::fstat(&node)?;
    let is_same = FileType::from_mode(stat.st_mode as u16) == Some(metadata.file_type); // the type is in the low bits
    let (major, minor) = metadata.device;
    let is_device = matches!(metadata.file_type, FileType::BlockDevice | FileType::CharDevice);
    match is_same && (!is_device || stat.st_rdev == fs::makedev(major, minor)) {
        true => Ok(node),
        false => Err(Errno::STALE),
    }
}

fn make_node(place: &Place, name: &[u8], facts: &Facts) -> Result<()> {
    let (major, minor) = facts.metadata.device;
    let node = |kind| fs::mknodat(&place.fd, name, kind, PRIVATE_FILE, fs::makedev(major, minor));
    match facts.metadata.file_type {
        FileType::Symlink => fs::symlinkat(facts.target.as_deref().unwrap_or_default(), &place.fd, name),
        FileType::Fifo => node(fs::FileType::Fifo),
        FileType::Socket => node(fs::FileType::Socket),
        FileType::CharDevice => node(fs::FileType::CharacterDevice),
        FileType::BlockDevice => node(fs::FileType::BlockDevice),
        FileType::Regular | FileType::Directory => Err(Errno::INVAL),
    }
}

/// Gives an open file or directory its owner, attributes, mode, times and flags. The order counts: a change of owner
/// clears set-uid bits and capabilities, attributes cannot be set on what may not be written, all of it changes times,
/// and flags may forbid all of it.
pub fn complete(
    fd: impl AsFd,
    facts: &Facts,
    rights: Rights,
    progress: &Progress,
) -> std::result::Result<(), Refused> {
    let (fd, metadata) = (fd.as_fd(), &facts.metadata);
    let stat = fs::fstat(fd).map_err(to("look at it"))?;
    let chown = |uid, gid| fs::fchown(fd, uid, gid);
    let owned = give_owner(metadata, &stat, rights, progress, chown).map_err(to("set the owner"))?;
    let set = |name: &[u8], value: &[u8]| fs::fsetxattr(fd, name, value, XattrFlags::empty());
    let attributes = set_xattrs(facts, progress, set);
    fs::fchmod(fd, mode(metadata, owned)).map_err(to("set the mode"))?;
    fs::futimens(fd, &times(metadata)).map_err(to("set the times"))?;
    expect_times(fd, metadata, progress).map_err(to("look at the times"))?;
    if metadata.file_type == FileType::Directory {
        flags::hint(fd, facts, progress);
    }
    let flags = flags::give(fd, metadata, progress);
    flags.map_err(|error| to("set the flags")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    attributes
}

/// Which of its owners a file has as the image says.
#[derive(Clone, Copy, Debug)]
struct Owned {
    uid: bool,
    gid: bool,
}

/// Gives a file its owner and group. Those that it has are asked for, not guessed: in a set-GID directory it got the
/// directory's group. An ordinary user may give it any group that he is in.
fn give_owner(
    metadata: &Metadata,
    stat: &fs::Stat,
    rights: Rights,
    progress: &Progress,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<()>,
) -> Result<Owned> {
    let mut owned = Owned { uid: metadata.uid == stat.st_uid, gid: metadata.gid == stat.st_gid };
    // The highest number means "leave it" to the system.
    let uid = (!owned.uid && rights.is_root && metadata.uid != u32::MAX).then(|| Uid::from_raw(metadata.uid));
    let gid = (!owned.gid && metadata.gid != u32::MAX).then(|| Gid::from_raw(metadata.gid));
    if uid.is_some() || gid.is_some() {
        match chown(uid, gid) {
            Ok(()) => (owned.uid, owned.gid) = (owned.uid || uid.is_some(), owned.gid || gid.is_some()),
            Err(Errno::PERM) if !rights.is_root => {}
            failed => {
                note_loss(failed, "owners", progress)?;
                return Ok(owned);
            }
        }
    }
    if !owned.uid || !owned.gid {
        progress.lose("owners (that takes root)");
    }
    Ok(owned)
}

/// The mode. Without the right owner set-uid and set-gid would grant what nobody meant.
fn mode(metadata: &Metadata, owned: Owned) -> Mode {
    let mut bits = u32::from(metadata.permissions);
    if metadata.file_type != FileType::Directory {
        bits &= !(if owned.uid { 0 } else { 0o4000 });
        bits &= !(if owned.gid { 0 } else { 0o2000 });
    }
    Mode::from_raw_mode(bits)
}

fn times(metadata: &Metadata) -> Timestamps {
    let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(metadata.times.access), last_modification: time(metadata.times.modify) }
}

/// Counts times that this file system cannot hold. Those of 32 bits all can.
fn expect_times(fd: BorrowedFd<'_>, metadata: &Metadata, progress: &Progress) -> Result<()> {
    let (access, modify) = (metadata.times.access.seconds, metadata.times.modify.seconds);
    if i32::try_from(access).is_ok() && i32::try_from(modify).is_ok() {
        return Ok(());
    }
    let stat = fs::fstat(fd)?;
    if (stat.st_atime, stat.st_mtime) != (access, modify) {
        progress.lose("times (this file system cannot hold them)");
    }
    Ok(())
}

/// What the system does not allow here is no failure: it is counted.
fn note_loss(result: Result<()>, what: &str, progress: &Progress) -> Result<()> {
    match result {
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL)) => {
            progress.lose(&format!("{what} ({errno})"));
            Ok(())
        }
        other => other,
    }
}

/// Sets all that can be set; the first that this file system has no room for is an error.
fn set_xattrs(
    facts: &Facts,
    progress: &Progress,
    set: impl Fn(&[u8], &[u8]) -> Result<()>,
) -> std::result::Result<(), Refused> {
    let mut outcome = Ok(());
    for (name, value) in &facts.xattrs {
        let namespace = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        let what = || format!("extended attributes {}.*", String::from_utf8_lossy(namespace));
        match set(name, value) {
            Ok(()) => {}
            Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => {
                progress.lose(&format!("{} ({errno}: no /proc?)", what()))
            }
            Err(errno) => {
                let set = note_loss(Err(errno), &what(), progress);
                outcome = outcome.and(set.map_err(to("keep all extended attributes")));
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

    fn fifo() -> Facts {
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
        Facts { metadata, target: None, xattrs: Vec::new(), hints: flags::Hints::default() }
    }

    fn times_of_nothing() -> format::inode::InodeTimes {
        let time = Timestamp { seconds: 1, nanoseconds: 0 };
        format::inode::InodeTimes { access: time, modify: time, change: time, create: time }
    }

    /// Somebody who may write in the directory puts a link in the place of a pipe that was made a moment ago: `chmod`
    /// by name followed it, as root, to any file.
    #[test]
    fn what_took_the_place_of_a_special_file_gets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, b"").unwrap();
        std::fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let before = victim.metadata().unwrap();
        let fd = fs::open(folder.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let place = Place { fd, path: Vec::new() };
        let (rights, progress) = (Rights::new(false), Progress::hidden());
        make_special(&place, b"pipe", &fifo(), rights, &progress).unwrap();
        assert_eq!(folder.path().join("pipe").symlink_metadata().unwrap().mode(), 0o010_777);
        for name in ["link", "other"] {
            match name {
                "link" => symlink(&victim, folder.path().join(name)).unwrap(),
                _ => std::fs::hard_link(&victim, folder.path().join(name)).unwrap(),
            }
            let before = victim.metadata().unwrap();
            let refused = complete_node(&place, name.as_bytes(), &fifo(), rights, &progress).unwrap_err();
            assert_eq!(refused.errno, Errno::STALE, "{name}");
            assert_eq!(victim.metadata().unwrap().ctime_nsec(), before.ctime_nsec());
        }
        let after = victim.metadata().unwrap();
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    }
}
