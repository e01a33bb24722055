//! System calls that read a directory and its files.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use block::fiemap::SharedExtent;
use block::fsxattr::FsXattr;
use read::join;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;
use volume::Settings;

use crate::item::{StoredSize, kept};
use crate::syscalls::{Attributes, attributes, changed, has_holes, modified};
use crate::{Error, Excludes, Result};

/// An open directory.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// Path below the root of the tree.
    pub path: Vec<u8>,
    /// Path of the root of the tree, for messages.
    root: PathBuf,
    pub stat: Stat,
    /// Whether files of its file system can share blocks; `None` if shared blocks are not reported.
    can_share: Option<bool>,
    /// Patterns of files to skip.
    pub excludes: Excludes,
}

/// The name of a file that is not a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub bytes: Vec<u8>,
    /// Whether the directory entry says that it is a regular file.
    pub is_regular: bool,
}

/// A run of bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub bytes: Range<u64>,
    /// Offset on the device, if other files share it.
    pub physical: Option<u64>,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Folder {
    /// Opens the root of a tree. A symlink is followed. `shares`: report shared blocks.
    pub fn open_root(path: &Path, shares: bool, excludes: &Excludes) -> Result<Self> {
        let failed = |errno| Error::source(path, "open it", errno);
        let fd = open_quietly(rustix::fs::CWD, path.as_os_str().as_bytes(), DIRECTORY).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let can_share = shares.then(|| can_share(&fd));
        let (path, root) = (Vec::new(), path.into());
        Ok(Self { fd, path, root, stat, can_share, excludes: excludes.clone() })
    }

    /// Opens a subdirectory.
    pub fn open_below(&self, name: &[u8]) -> Result<Self> {
        let failed = |errno| self.failed(name, "open it", errno);
        let fd = open_quietly(&self.fd, name, DIRECTORY | OFlags::NOFOLLOW).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let can_share = match stat.st_dev == self.stat.st_dev {
            true => self.can_share,
            false => self.can_share.map(|_| can_share(&fd)),
        };
        let (path, root) = (join(&self.path, name), self.root.clone());
        Ok(Self { fd, path, root, stat, can_share, excludes: self.excludes.clone() })
    }

    /// The path of a file for a message.
    pub fn shown(&self, name: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(&join(&self.path, name)))
    }

    fn failed(&self, name: &[u8], action: &'static str, errno: Errno) -> Error {
        // A file that was listed and is gone, or has another type, was changed meanwhile.
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => {
                Error::Changed { path: self.shown(name) }
            }
            errno => Error::source(self.shown(name), action, errno),
        }
    }

    /// Lists the directory, sorted: files that are not directories, and directories.
    pub fn list(&self) -> Result<(Vec<Name>, Vec<Vec<u8>>)> {
        /// Size of the buffer for entries, in bytes.
        const LISTED: usize = 32 << 10;
        let failed = |errno| self.failed(b"", "list it", errno);
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        let mut buffer = [MaybeUninit::uninit(); LISTED];
        // The directory is listed once, so that its file offset may be used.
        let mut entries = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let file_type = match entry.file_type() {
                FileType::Unknown => FileType::from_raw_mode(self.stat_of(name)?.st_mode),
                known => known,
            };
            if self.is_excluded(name, file_type == FileType::Directory) {
                continue;
            }
            let bytes = name.to_vec();
            match file_type {
                FileType::Directory => folders.push(bytes),
                other => files.push(Name { bytes, is_regular: other == FileType::RegularFile }),
            }
        }
        files.sort_unstable();
        folders.sort_unstable();
        Ok((files, folders))
    }

    /// Whether a pattern excludes a file.
    pub fn is_excluded(&self, name: &[u8], is_directory: bool) -> bool {
        !self.excludes.is_empty() && self.excludes.matches(&join(&self.path, name), is_directory)
    }

    pub fn stat_of(&self, name: &[u8]) -> Result<Stat> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.failed(name, "stat it", errno))
    }

    pub fn target_of(&self, name: &[u8]) -> Result<Vec<u8>> {
        match rustix::fs::readlinkat(&self.fd, name, Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            // It is no longer a symlink.
            Err(Errno::INVAL) => Err(Error::Changed { path: self.shown(name) }),
            Err(errno) => Err(self.failed(name, "read its target", errno)),
        }
    }

    /// Size of the contents of a regular file.
    pub fn stored(&self, name: &[u8], stat: &Stat) -> Result<StoredSize> {
        if !has_holes(stat) {
            return Ok(StoredSize::whole(stat.st_size.unsigned_abs()));
        }
        // The number of blocks also differs for compressed files: the same tree would be counted differently elsewhere.
        let file = self.open_file(name)?;
        let (mut stored, mut at) = (StoredSize::default(), 0);
        while let Some(run) = file.next_data(at)? {
            stored.add(&run);
            at = run.end;
        }
        Ok(stored)
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, name: &[u8]) -> Result<OpenFile> {
        // Does not block on a pipe that replaced the file.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = open_quietly(&self.fd, name, flags).map_err(|errno| self.failed(name, "open it", errno))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| self.failed(name, "stat it", errno))?;
        let path = self.shown(name);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let shared =
                    if self.can_share == Some(true) && stat.st_blocks > 0 { shared(&fd) } else { Vec::new() };
                let name = join(&self.path, name).into();
                Ok(OpenFile { fd, path, name, stat, shared })
            }
            _ => Err(Error::Changed { path }),
        }
    }

    /// Extended attributes of the directory.
    pub fn attributes(&self) -> Result<Attributes> {
        attributes(
            |list| rustix::fs::flistxattr(&self.fd, list),
            |name, value| rustix::fs::fgetxattr(&self.fd, name, value),
        )
        .map_err(|error| self.failed(b"", "read its attributes", error.errno))
    }

    /// Project ID, flags and hints of the directory.
    pub fn settings(&self) -> Result<Settings> {
        settings(&self.fd).map_err(|error| Error::source(self.shown(b""), "read its flags", error))
    }

    /// Whether a file has extended attributes; `None` if that is not known without listing them.
    pub fn has_attributes(&self, name: &[u8]) -> Option<bool> {
        self.beside(|| block::attr_at::xattr_list_size(&self.fd, name), 0).map(|length| length > 0)
    }

    /// Project ID, flags and hints of a file; `None` if it must be opened for that.
    pub fn settings_of(&self, name: &[u8]) -> Option<Settings> {
        self.beside(|| block::attr_at::fsxattr(&self.fd, name), FsXattr::default()).map(preserved)
    }

    /// Performs a call that only newer kernels have; returns `none` if the file system does not support it.
    fn beside<T>(&self, call: impl FnOnce() -> io::Result<T>, none: T) -> Option<T> {
        /// The kernel does not have the call.
        static UNKNOWN: AtomicBool = AtomicBool::new(false);
        if UNKNOWN.load(Relaxed) {
            return None;
        }
        match call().map_err(|error| Errno::from_io_error(&error)) {
            Ok(found) => Some(found),
            Err(Some(Errno::OPNOTSUPP | Errno::NOTTY)) => Some(none),
            Err(Some(Errno::NOSYS)) => {
                UNKNOWN.store(true, Relaxed);
                None
            }
            // Another way may be allowed, or reports why it is not.
            Err(_) => None,
        }
    }

    /// Extended attributes of a file without opening it.
    pub fn attributes_of(&self, name: &[u8]) -> Result<Attributes> {
        if self.has_attributes(name) == Some(false) {
            return Ok(Attributes::default());
        }
        // Older kernels have no such call with a directory descriptor; a path takes several times as long.
        let path = [format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).as_bytes(), name].concat();
        attributes(
            |list| rustix::fs::llistxattr(path.as_slice(), list),
            |name, value| rustix::fs::lgetxattr(path.as_slice(), name, value),
        )
        .map_err(|error| self.failed(name, "read its attributes", error.errno))
    }
}

/// An open regular file.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    path: PathBuf,
    /// Path below the root of the tree.
    pub name: Arc<[u8]>,
    /// Its stat when it was opened.
    pub stat: Stat,
    /// Ranges that are shared with other files, in order.
    shared: Vec<SharedExtent>,
}

impl OpenFile {
    pub fn size(&self) -> u64 {
        self.stat.st_size.unsigned_abs()
    }

    /// A copy of which no byte can be read.
    #[cfg(test)]
    pub fn with_failing_disk(mut self) -> Self {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        self.fd = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        self
    }

    /// See [`has_holes`].
    pub fn has_holes(&self) -> bool {
        has_holes(&self.stat)
    }

    /// Whether other files share some of its blocks.
    pub fn shares(&self) -> bool {
        !self.shared.is_empty()
    }

    pub fn attributes(&self) -> Result<Attributes> {
        attributes(
            |list| rustix::fs::flistxattr(&self.fd, list),
            |name, value| rustix::fs::fgetxattr(&self.fd, name, value),
        )
        .map_err(|error| self.failed("read its attributes", error.errno))
    }

    /// Project ID and flags.
    pub fn settings(&self) -> Result<Settings> {
        settings(&self.fd).map_err(|error| self.failed("read its flags", error))
    }

    fn failed(&self, action: &'static str, source: impl Into<io::Error>) -> Error {
        Error::source(&self.path, action, source)
    }

    /// Reads `length` bytes, all of which existed when the file was opened.
    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        /// Contents are written in whole blocks: with space for the rest of one they need not be moved.
        const BLOCK: usize = 4096;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(length.checked_next_multiple_of(BLOCK).unwrap_or(length));
        while bytes.len() < length {
            let at = offset + bytes.len() as u64;
            let read = rustix::io::pread(&self.fd, rustix::buffer::spare_capacity(&mut bytes), at);
            match read {
                Ok(0) => return Err(Error::Changed { path: self.path.clone() }),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("read it", errno)),
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Returns the first run of data at or after an offset, up to a maximum length, which is entirely shared or not at
    /// all.
    pub fn next_run(&self, from: u64, max: u64) -> Result<Option<Run>> {
        Ok(self.next_data(from)?.map(|Range { start, end }| {
            let (end, physical) = self.alike(start, end);
            Run { bytes: start..end.min(start.saturating_add(max)), physical }
        }))
    }

    /// Returns the first data at or after an offset.
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        if from >= size {
            return Ok(None);
        }
        if !self.has_holes() {
            return Ok(Some(from..size));
        }
        block::next_data(&self.fd, from, size).map_err(|error| self.failed("find its data", error))
    }

    /// Returns how far a run from `offset` to `end` is shared or not shared, and its place.
    fn alike(&self, offset: u64, end: u64) -> (u64, Option<u64>) {
        let behind = self.shared.partition_point(|extent| extent.offset <= offset);
        let holds = |extent: &&SharedExtent| offset - extent.offset < extent.length;
        if let Some(extent) = behind.checked_sub(1).and_then(|at| self.shared.get(at)).filter(holds) {
            let within = offset - extent.offset;
            return (end.min(offset + (extent.length - within)), extent.physical.checked_add(within));
        }
        (self.shared.get(behind).map_or(end, |next| end.min(next.offset)), None)
    }

    /// Fails if the file was changed meanwhile.
    pub fn expect_unchanged(&self) -> Result<()> {
        let now = rustix::fs::fstat(&self.fd).map_err(|errno| self.failed("stat it", errno))?;
        let metadata = |stat: &Stat| (stat.st_size, modified(stat), changed(stat));
        match metadata(&now) == metadata(&self.stat) {
            true => Ok(()),
            false => Err(Error::Changed { path: self.path.clone() }),
        }
    }
}

/// Opens for reading, without changing atime if the system allows it (for own files).
fn open_quietly(dir: impl AsFd, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let open = |flags| rustix::fs::openat(&dir, name, flags, Mode::empty());
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        opened => opened,
    }
}

/// Whether the file system supports shared blocks: Btrfs, XFS, bcachefs or OCFS2, by the numbers of `linux/magic.h` and
/// of their own headers.
fn can_share(fd: &OwnedFd) -> bool {
    const SHARING: [i64; 4] = [0x9123_683e, 0x5846_5342, 0xca45_1a4e, 0x7461_636f];
    rustix::fs::fstatfs(fd).is_ok_and(|about| SHARING.contains(&about.f_type))
}

/// Ranges that are shared with other files; unknown ones are copied.
fn shared(fd: &OwnedFd) -> Vec<SharedExtent> {
    /// Of a file with more extents, the rest is copied.
    const EXTENTS_MAX: usize = 16 << 10;
    block::fiemap::shared(fd, EXTENTS_MAX).unwrap_or_default()
}

/// The settings that are preserved.
fn preserved(found: FsXattr) -> Settings {
    let FsXattr { xflags, extsize, cowextsize, projid: project, .. } = found;
    kept(Settings { xflags, extsize, cowextsize, project })
}

/// Project ID, flags and hints; none if the file system has none.
fn settings(fd: &OwnedFd) -> io::Result<Settings> {
    match block::fsxattr::get(fd) {
        Ok(found) => Ok(preserved(found)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(Settings::default()),
            _ => Err(error),
        },
    }
}
