//! System calls on files of the host, shared by imports, extraction and copies.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use base::time::Time;
use rustix::fs::{self, AtFlags, Mode, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use volume::{DeviceNumber, NewFileType};

type Result<T> = std::result::Result<T, Errno>;

/// A system call that failed.
#[derive(Clone, Copy, Debug)]
pub struct HostError {
    /// What failed: the end of a sentence that begins with "cannot".
    pub action: &'static str,
    pub errno: Errno,
}

/// Adds the failed action to an errno.
pub fn cannot(action: &'static str) -> impl Fn(Errno) -> HostError {
    move |errno| HostError { action, errno }
}

/// The errno of an error of the standard library.
pub fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Path of a descriptor in /proc: it names the file itself, even if that is a symlink, for calls that do not accept an
/// `O_PATH` descriptor. Valid as long as the descriptor is open.
pub fn path_of(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Extended attributes.
#[derive(Debug, Default)]
pub struct Attributes {
    pub readable: Vec<(Vec<u8>, Vec<u8>)>,
    /// Number of attributes that cannot be read.
    pub unreadable: usize,
}

/// Lists attributes and reads each. Attributes that cannot be read are counted; those that disappear meanwhile are
/// ignored.
pub fn attributes(
    list: impl Fn(&mut [u8]) -> Result<usize>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize>,
) -> std::result::Result<Attributes, HostError> {
    /// Sufficient for nearly all; all names, or a value, have at most 64 KiB.
    const USUAL: usize = 512;
    const MOST: usize = 64 << 10;
    let list = |buffer: &mut [u8]| list(buffer).map_err(cannot("list its extended attributes"));
    let mut found = Attributes::default();
    let mut small = [0; USUAL];
    let mut large = Vec::new();
    let names = match list(&mut small) {
        Ok(length) => small.get(..length).unwrap_or_default(),
        Err(HostError { errno: Errno::RANGE, .. }) => {
            large.resize(MOST, 0);
            let length = list(&mut large)?;
            large.get(..length).unwrap_or_default()
        }
        // Some file systems do not support attributes.
        Err(HostError { errno: Errno::NOTSUP, .. }) => return Ok(found),
        Err(error) => return Err(error),
    };
    let mut value = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        value.resize(MOST, 0);
        match get(name, &mut value) {
            Ok(length) => {
                found.readable.push((name.to_vec(), value.get(..length).unwrap_or_default().to_vec()))
            }
            Err(Errno::NODATA) => {}
            Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => found.unreadable += 1,
            Err(errno) => return Err(cannot("read its extended attributes")(errno)),
        }
    }
    Ok(found)
}

/// Whether a file has fewer blocks than its size. True for compressed files too, which is harmless.
pub fn has_holes(stat: &Stat) -> bool {
    stat.st_blocks.unsigned_abs() * 512 < stat.st_size.unsigned_abs()
}

pub fn time(seconds: i64, nanos: i64) -> Time {
    Time { seconds, nanos: u32::try_from(nanos).unwrap_or(0) }
}

/// Access time (atime).
pub fn accessed(stat: &Stat) -> Time {
    time(stat.st_atime, stat.st_atime_nsec)
}

/// Modification time (mtime).
pub fn modified(stat: &Stat) -> Time {
    time(stat.st_mtime, stat.st_mtime_nsec)
}

/// Change time (ctime). Unlike mtime, it cannot be set back.
pub fn changed(stat: &Stat) -> Time {
    time(stat.st_ctime, stat.st_ctime_nsec)
}

pub fn device_of(stat: &Stat) -> DeviceNumber {
    DeviceNumber { major: fs::major(stat.st_rdev), minor: fs::minor(stat.st_rdev) }
}

/// Creates a symlink or a special file. Regular files and directories are created by other calls.
pub fn make_node(dir: impl AsFd, name: &[u8], kind: NewFileType<'_>, mode: Mode) -> Result<()> {
    let node = |kind, device| fs::mknodat(&dir, name, kind, mode, device);
    let device = |device: DeviceNumber| fs::makedev(device.major, device.minor);
    match kind {
        NewFileType::Symlink(target) => fs::symlinkat(target, &dir, name),
        NewFileType::Fifo => node(fs::FileType::Fifo, 0),
        NewFileType::Socket => node(fs::FileType::Socket, 0),
        NewFileType::CharDevice(number) => node(fs::FileType::CharacterDevice, device(number)),
        NewFileType::BlockDevice(number) => node(fs::FileType::BlockDevice, device(number)),
        NewFileType::Regular | NewFileType::Directory => Err(Errno::INVAL),
    }
}

/// Opens a file to set its metadata, without following a symlink.
pub fn open_node(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
    fs::openat(dir, name, fs::OFlags::PATH | fs::OFlags::NOFOLLOW | fs::OFlags::CLOEXEC, Mode::empty())
}

/// Sets atime and mtime of a file, which may be open with `O_PATH`.
pub fn set_times(node: impl AsFd, accessed: Time, modified: Time) -> Result<()> {
    let times = timestamps(accessed, modified);
    match fs::utimensat(&node, c"", &times, AtFlags::EMPTY_PATH) {
        // Before Linux 5.8 the call does not accept O_PATH descriptors.
        Err(Errno::INVAL) => fs::utimensat(fs::CWD, path_of(node).as_str(), &times, AtFlags::empty()),
        set => set,
    }
}

pub fn timestamps(accessed: Time, modified: Time) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
    Timestamps { last_access: time(accessed), last_modification: time(modified) }
}
