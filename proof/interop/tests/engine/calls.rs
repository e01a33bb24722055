//! The kernel's XFS as a subject: system calls on a mounted volume, by inode number. It judges the model's rules.
//!
//! Every file is open (`O_PATH`) while it has a name or is held, so that it can be spoken of by its number, and so that
//! no other file gets that number meanwhile.
//!
//! # Locking
//! One mutex around the table of open files, never held over a system call that changes anything.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Answer, Change, Facts, Failure, How, Kind, Name, New, Subject, Times};
use rustix::fs::{
    self, AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, StatxFlags, Timespec, Uid,
};
use rustix::io::Errno;

pub struct Calls {
    files: Mutex<HashMap<u64, File>>,
    root: u64,
}

struct File {
    fd: Arc<OwnedFd>,
    /// Open beyond its last name.
    held: bool,
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

    /// Remembers an open file; gives its number.
    fn know(&self, fd: OwnedFd) -> Answer<u64> {
        let number = fs::fstat(&fd).map_err(failure)?.st_ino;
        self.files().entry(number).or_insert_with(|| File { fd: Arc::new(fd), held: false });
        Ok(number)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, number: u64) -> Answer<Arc<OwnedFd>> {
        let files = self.files();
        files.get(&number).map(|file| file.fd.clone()).ok_or_else(|| failure(Errno::NOENT))
    }

    fn set_held(&self, number: u64, held: bool) -> Answer<()> {
        let mut files = self.files();
        files.get_mut(&number).ok_or_else(|| failure(Errno::NOENT))?.held = held;
        Ok(())
    }

    /// The number that a name stands for, if it stands for any.
    fn number(dir: &OwnedFd, name: &[u8]) -> Option<u64> {
        fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_ino)
    }

    /// Closes a file that has lost its last name and is not held.
    fn close_unnamed(&self, number: Option<u64>) {
        let Some(number) = number else { return };
        let unnamed = |file: &File| !file.held && fs::fstat(&file.fd).is_ok_and(|stat| stat.st_nlink == 0);
        let closed = match self.files().entry(number) {
            Entry::Occupied(entry) if unnamed(entry.get()) => Some(entry.remove()),
            _ => None,
        };
        drop(closed);
    }
}

fn failure(errno: Errno) -> Failure {
    Failure { errno: errno.raw_os_error(), message: errno.to_string() }
}

fn owners(uid: Option<u32>, gid: Option<u32>) -> (Option<Uid>, Option<Gid>) {
    (uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

impl Calls {
    fn remove(&self, dir: u64, name: &[u8], flags: AtFlags) -> Answer<()> {
        let fd = self.file(dir)?;
        let number = Self::number(&fd, name);
        fs::unlinkat(&*fd, name, flags).map_err(failure)?;
        self.close_unnamed(number);
        Ok(())
    }
}

impl Subject for Calls {
    fn root(&self) -> u64 {
        self.root
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        self.know(fs::openat(&*self.file(dir)?, name, PATH, Mode::empty()).map_err(failure)?)
    }

    fn create(&self, dir: u64, name: &[u8], new: &New) -> Answer<u64> {
        let (fd, mode) = (&*self.file(dir)?, Mode::from_raw_mode(new.mode.into()));
        let node = |kind, major, minor| fs::mknodat(fd, name, kind, mode, fs::makedev(major, minor));
        let made = match &new.kind {
            Kind::File => node(FileType::RegularFile, 0, 0),
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
        fs::linkat(&*self.file(number)?, "", &*self.file(dir)?, name, AtFlags::EMPTY_PATH).map_err(failure)
    }

    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.remove(dir, name, AtFlags::empty())
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.remove(dir, name, AtFlags::REMOVEDIR)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), how: How) -> Answer<()> {
        let flags = match how {
            How::Replace => RenameFlags::empty(),
            How::NoReplace => RenameFlags::NOREPLACE,
            How::Exchange => RenameFlags::EXCHANGE,
            How::Whiteout(_) => RenameFlags::WHITEOUT,
        };
        let (old, new) = (self.file(from.0)?, self.file(to.0)?);
        let replaced = Self::number(&new, to.1);
        fs::renameat_with(&*old, from.1, &*new, to.1, flags).map_err(failure)?;
        self.close_unnamed(replaced);
        Ok(())
    }

    fn anonymous(&self, dir: u64, new: &New) -> Answer<u64> {
        let mode = Mode::from_raw_mode(new.mode.into());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = fs::openat(&*self.file(dir)?, ".", flags, mode).map_err(failure)?;
        let (uid, gid) = owners(Some(new.uid), Some(new.gid));
        fs::fchown(&fd, uid, gid).map_err(failure)?;
        let number = self.know(fd)?;
        self.set_held(number, true)?;
        Ok(number)
    }

    fn hold(&self, number: u64) -> Answer<()> {
        self.set_held(number, true)
    }

    fn release(&self, number: u64) -> Answer<()> {
        self.set_held(number, false)?;
        self.close_unnamed(Some(number));
        Ok(())
    }

    fn stat(&self, number: u64) -> Answer<Facts> {
        let fd = &*self.file(number)?;
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
        let fd = fs::openat(&*self.file(dir)?, ".", flags, Mode::empty()).map_err(failure)?;
        let (mut entries, mut buffer) = (BTreeMap::new(), Vec::with_capacity(1 << 16));
        // Not by `Dir`, which makes nothing of what the kernel says of a removed directory.
        let mut listing = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(failure)?;
            let name = entry.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                entries.insert(name, entry.ino());
            }
        }
        Ok(entries)
    }

    fn set(&self, number: u64, change: &Change) -> Answer<()> {
        let fd = &*self.file(number)?;
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(&*self.file(self.root)?, ".", flags, Mode::empty()).map_err(failure)?;
        fs::syncfs(fd).map_err(failure)
    }
}
