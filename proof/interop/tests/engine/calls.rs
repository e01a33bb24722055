//! The kernel's XFS as a subject: system calls on a mounted volume, by inode number, to verify the model's rules.
//!
//! Every file with a name is kept open (`O_PATH`), so that it can be found by inode number, and so that its number is
//! not reused.
//!
//! # Locking
//! One mutex around the table of open files, never held over a system call that changes the volume.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Answer, Failure, FileKind, Name, NewFile, RenameMode, SetAttr, Stat, Subject, Times};
use rustix::fs::{
    self, AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, StatxFlags, Timespec, Uid,
};
use rustix::io::Errno;

/// A mounted volume as a subject.
pub struct SystemCalls {
    files: Mutex<HashMap<u64, File>>,
    root: u64,
}

struct File {
    fd: Arc<OwnedFd>,
    /// It was opened by the model and must exist beyond its last name.
    open: bool,
}

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl SystemCalls {
    /// Creates a subject for the volume mounted on `mount`.
    pub fn new(mount: &Path) -> Self {
        // The model decides the modes of new files.
        rustix::process::umask(Mode::empty());
        let root = fs::openat(CWD, mount, PATH, Mode::empty()).unwrap();
        let calls = Self { files: Mutex::default(), root: fs::fstat(&root).unwrap().st_ino };
        calls.remember(root).unwrap();
        calls
    }

    /// Adds an open file to the table. Returns its inode number.
    fn remember(&self, fd: OwnedFd) -> Answer<u64> {
        let number = fs::fstat(&fd).map_err(failure)?.st_ino;
        self.files().entry(number).or_insert_with(|| File { fd: Arc::new(fd), open: false });
        Ok(number)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, number: u64) -> Answer<Arc<OwnedFd>> {
        let files = self.files();
        files.get(&number).map(|file| file.fd.clone()).ok_or_else(|| failure(Errno::NOENT))
    }

    fn set_open(&self, number: u64, open: bool) -> Answer<()> {
        let mut files = self.files();
        files.get_mut(&number).ok_or_else(|| failure(Errno::NOENT))?.open = open;
        Ok(())
    }

    /// Returns the inode number of a name, if it exists.
    fn number(dir: &OwnedFd, name: &[u8]) -> Option<u64> {
        fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_ino)
    }

    /// Closes a file without a name that the model has not opened.
    fn close_unnamed(&self, number: Option<u64>) {
        let Some(number) = number else { return };
        let unnamed = |file: &File| !file.open && fs::fstat(&file.fd).is_ok_and(|stat| stat.st_nlink == 0);
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

impl SystemCalls {
    fn remove(&self, dir: u64, name: &[u8], flags: AtFlags) -> Answer<()> {
        let fd = self.file(dir)?;
        let number = Self::number(&fd, name);
        fs::unlinkat(&*fd, name, flags).map_err(failure)?;
        self.close_unnamed(number);
        Ok(())
    }
}

impl Subject for SystemCalls {
    fn root(&self) -> u64 {
        self.root
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        self.remember(fs::openat(&*self.file(dir)?, name, PATH, Mode::empty()).map_err(failure)?)
    }

    fn create(&self, dir: u64, name: &[u8], new: &NewFile) -> Answer<u64> {
        let (fd, mode) = (&*self.file(dir)?, Mode::from_raw_mode(new.mode.into()));
        let node = |kind, major, minor| fs::mknodat(fd, name, kind, mode, fs::makedev(major, minor));
        let made = match &new.kind {
            FileKind::File => node(FileType::RegularFile, 0, 0),
            FileKind::Directory => fs::mkdirat(fd, name, mode),
            FileKind::Symlink(target) => fs::symlinkat(&**target, fd, name),
            FileKind::CharDevice(major, minor) => node(FileType::CharacterDevice, *major, *minor),
            FileKind::BlockDevice(major, minor) => node(FileType::BlockDevice, *major, *minor),
            FileKind::Fifo => node(FileType::Fifo, 0, 0),
            FileKind::Socket => node(FileType::Socket, 0, 0),
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

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Answer<()> {
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout(_) => RenameFlags::WHITEOUT,
        };
        let (old, new) = (self.file(from.0)?, self.file(to.0)?);
        let replaced = Self::number(&new, to.1);
        fs::renameat_with(&*old, from.1, &*new, to.1, flags).map_err(failure)?;
        self.close_unnamed(replaced);
        Ok(())
    }

    fn anonymous(&self, dir: u64, new: &NewFile) -> Answer<u64> {
        let mode = Mode::from_raw_mode(new.mode.into());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = fs::openat(&*self.file(dir)?, ".", flags, mode).map_err(failure)?;
        let (uid, gid) = owners(Some(new.uid), Some(new.gid));
        fs::fchown(&fd, uid, gid).map_err(failure)?;
        let number = self.remember(fd)?;
        self.set_open(number, true)?;
        Ok(number)
    }

    fn open(&self, number: u64) -> Answer<()> {
        self.set_open(number, true)
    }

    fn close(&self, number: u64) -> Answer<()> {
        self.set_open(number, false)?;
        self.close_unnamed(Some(number));
        Ok(())
    }

    fn stat(&self, number: u64) -> Answer<Stat> {
        let fd = &*self.file(number)?;
        let stat = fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::ALL).map_err(failure)?;
        let device = (stat.stx_rdev_major, stat.stx_rdev_minor);
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => {
                FileKind::Symlink(fs::readlinkat(fd, "", Vec::new()).map_err(failure)?.into_bytes())
            }
            FileType::CharacterDevice => FileKind::CharDevice(device.0, device.1),
            FileType::BlockDevice => FileKind::BlockDevice(device.0, device.1),
            FileType::Fifo => FileKind::Fifo,
            _ => FileKind::Socket,
        };
        Ok(Stat {
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
        // `Dir` ignores the error for a removed directory; `RawDir` returns it.
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

    fn set(&self, number: u64, change: &SetAttr) -> Answer<()> {
        let fd = &*self.file(number)?;
        if let Some(mode) = change.mode {
            // chmod does not accept an `O_PATH` descriptor.
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
