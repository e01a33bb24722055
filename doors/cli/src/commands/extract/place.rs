//! Places on this machine, and what can be made there.
//!
//! # Invariants
//! Every call names one component, checked by [`is_safe`](super::source::is_safe), below the descriptor of a
//! directory that this run has opened without following a link. So nothing that an image says, and no link that
//! anybody puts there meanwhile, leads outside of the directory that the user named.

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
    uid: u32,
    gid: u32,
    /// What exists already is replaced.
    pub overwrite: bool,
}

impl Rights {
    /// Of this process.
    pub fn new(overwrite: bool) -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Self { is_root: uid.is_root(), uid: uid.as_raw(), gid: gid.as_raw(), overwrite }
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
    if let Some((uid, gid)) = owner(metadata, rights, progress) {
        let given = fs::chownat(&place.fd, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        note_loss(given, "owners", progress).map_err(to("set the owner"))?;
    }
    // There is no call that sets attributes below a descriptor; the kernel's own name for the descriptor is as good.
    let mut path = format!("/proc/self/fd/{}/", place.fd.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let set = |name: &[u8], value: &[u8]| fs::lsetxattr(path.as_slice(), name, value, XattrFlags::empty());
    let attributes = set_xattrs(facts, progress, set);
    if metadata.file_type != FileType::Symlink {
        // Nobody else can have put a link there: the directory is open to its owner alone until it is complete.
        fs::chmodat(&place.fd, name, mode(metadata, rights), AtFlags::empty()).map_err(to("set the mode"))?;
    }
    fs::utimensat(&place.fd, name, &times(metadata), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(to("set the times"))?;
    flags::lose(metadata, progress);
    attributes
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
    if let Some((uid, gid)) = owner(metadata, rights, progress) {
        note_loss(fs::fchown(fd, uid, gid), "owners", progress).map_err(to("set the owner"))?;
    }
    let set = |name: &[u8], value: &[u8]| fs::fsetxattr(fd, name, value, XattrFlags::empty());
    let attributes = set_xattrs(facts, progress, set);
    fs::fchmod(fd, mode(metadata, rights)).map_err(to("set the mode"))?;
    fs::futimens(fd, &times(metadata)).map_err(to("set the times"))?;
    let flags = flags::give(fd, metadata, progress);
    flags.map_err(|error| to("set the flags")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    attributes
}

/// The owner to be set; `None` where it is right already, or cannot be set.
fn owner(metadata: &Metadata, rights: Rights, progress: &Progress) -> Option<(Option<Uid>, Option<Gid>)> {
    if (metadata.uid, metadata.gid) == (rights.uid, rights.gid) {
        return None;
    }
    // The highest number means "leave it" to the system.
    if !rights.is_root || metadata.uid == u32::MAX || metadata.gid == u32::MAX {
        progress.lose("owners (that takes root)");
        return None;
    }
    Some((Some(Uid::from_raw(metadata.uid)), Some(Gid::from_raw(metadata.gid))))
}

/// The mode. Without the right owner set-uid and set-gid would grant what nobody meant.
fn mode(metadata: &Metadata, rights: Rights) -> Mode {
    let mut bits = u32::from(metadata.permissions);
    if !rights.is_root && metadata.file_type != FileType::Directory {
        if metadata.uid != rights.uid {
            bits &= !0o4000;
        }
        if metadata.gid != rights.gid {
            bits &= !0o2000;
        }
    }
    Mode::from_raw_mode(bits)
}

fn times(metadata: &Metadata) -> Timestamps {
    let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(metadata.times.access), last_modification: time(metadata.times.modify) }
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
