//! The kernel's XFS as a subject: system calls on a mounted volume, by inode number. It judges the model's rules.
//!
//! Every file stays open (`O_PATH`) from its creation on, so that it can be spoken of by its number; so no number comes
//! back, and files outlive their names whether the model holds them or not.
//!
//! # Locking
//! One mutex around the table of open files.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use model::{Answer, Change, Facts, Failure, How, Kind, Name, New, Subject, Times};
use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, StatxFlags, Timespec, Uid,
};
use rustix::io::Errno;

pub struct Calls {
    files: Mutex<HashMap<u64, &'static OwnedFd>>,
    root: u64,
}

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Calls {
    /// A mounted volume.
    pub fn new(mount: &Path) -> Self {
        // New files get the modes that the model says.
        rustix::process::umask(Mode::empty());
        let root = fs::openat(CWD, mount, PATH, Mode::empty()).unwrap();
        let calls = Self { files: Mutex::default(), root: fs::fstat(&root).unwrap().st_ino };
        calls.know(root).unwrap();
        calls
    }

    /// Remembers an open file; gives its number. Open files are leaked: they last as long as the test.
    fn know(&self, fd: OwnedFd) -> Answer<u64> {
        let number = fs::fstat(&fd).map_err(failure)?.st_ino;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.entry(number).or_insert_with(|| Box::leak(Box::new(fd)));
        Ok(number)
    }

    fn file(&self, number: u64) -> Answer<&'static OwnedFd> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&number).copied().ok_or_else(|| failure(Errno::NOENT))
    }
}

fn failure(errno: Errno) -> Failure {
    Failure { errno: errno.raw_os_error(), message: errno.to_string() }
}

fn owners(uid: Option<u32>, gid: Option<u32>) -> (Option<Uid>, Option<Gid>) {
    (uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

impl Subject for Calls {
    fn root(&self) -> u64 {
        self.root
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        self.know(fs::openat(self.file(dir)?, name, PATH, Mode::empty()).map_err(failure)?)
    }

    fn create(&self, dir: u64, name: &[u8], new: &New) -> Answer<u64> {
        let (fd, mode) = (self.file(dir)?, Mode::from_raw_mode(new.mode.into()));
        let node = |kind, major, minor| fs::mknodat(fd, name, kind, mode, fs::makedev(major, minor));
        let made = match &new.kind {
            Kind::File => {
                fs::openat(fd, name, OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, mode).map(drop)
            }
            Kind::Directory => fs::mkdirat(fd, name, mode),
            Kind::Symlink(target) => fs::symlinkat(&**target, fd, name),
            Kind::CharDevice(major, minor) => node(FileType::CharacterDevice, *major, *minor),
            Kind::BlockDevice(major, minor) => node(FileType::BlockDevice, *major, *minor),
            Kind::Fifo => node(FileType::Fifo, 0, 0),
            Kind::Socket => node(FileType::Socket, 0, 0),
        };
        made.map_err(failure)?;
        let (uid, gid) = owners(Some(new.uid), Some(new.gid));
        fs::chownat(fd, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(failure)?;
        self.lookup(dir, name)
    }

    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()> {
        fs::linkat(self.file(number)?, "", self.file(dir)?, name, AtFlags::EMPTY_PATH).map_err(failure)
    }

    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        fs::unlinkat(self.file(dir)?, name, AtFlags::empty()).map_err(failure)
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        fs::unlinkat(self.file(dir)?, name, AtFlags::REMOVEDIR).map_err(failure)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), how: How) -> Answer<()> {
        let flags = match how {
            How::Replace => RenameFlags::empty(),
            How::NoReplace => RenameFlags::NOREPLACE,
            How::Exchange => RenameFlags::EXCHANGE,
            How::Whiteout(_) => RenameFlags::WHITEOUT,
        };
        fs::renameat_with(self.file(from.0)?, from.1, self.file(to.0)?, to.1, flags).map_err(failure)
    }

    fn anonymous(&self, dir: u64, new: &New) -> Answer<u64> {
        let mode = Mode::from_raw_mode(new.mode.into());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = fs::openat(self.file(dir)?, ".", flags, mode).map_err(failure)?;
        let (uid, gid) = owners(Some(new.uid), Some(new.gid));
        fs::fchown(&fd, uid, gid).map_err(failure)?;
        self.know(fd)
    }

    fn hold(&self, number: u64) -> Answer<()> {
        self.file(number).map(drop)
    }

    fn release(&self, number: u64) -> Answer<()> {
        self.file(number).map(drop)
    }

    fn stat(&self, number: u64) -> Answer<Facts> {
        let fd = self.file(number)?;
        let stat = fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::ALL).map_err(failure)?;
        let device = (stat.stx_rdev_major, stat.stx_rdev_minor);
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => {
                Kind::Symlink(fs::readlinkat(fd, "", Vec::new()).map_err(failure)?.into_bytes())
            }
            FileType::CharacterDevice => Kind::CharDevice(device.0, device.1),
            FileType::BlockDevice => Kind::BlockDevice(device.0, device.1),
            FileType::Fifo => Kind::Fifo,
            _ => Kind::Socket,
        };
        Ok(Facts {
            kind,
            mode: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            links: stat.stx_nlink,
            times: Some(Times::default()),
        })
    }

    fn list(&self, dir: u64) -> Answer<BTreeMap<Name, u64>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(self.file(dir)?, ".", flags, Mode::empty()).map_err(failure)?;
        let mut entries = BTreeMap::new();
        for entry in Dir::read_from(&fd).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let name = entry.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                entries.insert(name, entry.ino());
            }
        }
        Ok(entries)
    }

    fn set(&self, number: u64, change: &Change) -> Answer<()> {
        let fd = self.file(number)?;
        if let Some(mode) = change.mode {
            // The file itself, though it was opened for its path alone.
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            fs::chmod(path, Mode::from_raw_mode(mode.into())).map_err(failure)?;
        }
        let (uid, gid) = owners(change.uid, change.gid);
        fs::chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(failure)?;
        if let (Some(accessed), Some(modified)) = (change.accessed, change.modified) {
            let time = |at: base::time::Time| Timespec { tv_sec: at.seconds, tv_nsec: i64::from(at.nanos) };
            let times = fs::Timestamps { last_access: time(accessed), last_modification: time(modified) };
            fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH).map_err(failure)?;
        }
        Ok(())
    }

    fn sync(&self) -> Answer<()> {
        Ok(())
    }
}
