//! A new image file that gets its name when it is complete.
//!
//! # Invariants
//! - Until [`NewFile::publish`] there is no file with the final name. A file that is dropped before leaves nothing
//!   behind, even if the process is killed (except on file systems without `O_TMPFILE`: there a hidden file may
//!   remain).
//! - Until then the file need not survive a power cut, and nothing is flushed. It is stable when it gets its name.
//! - An existing file is replaced only on request, and atomically. From [`ReplacedFile::lock`] on no one else writes to
//!   it, so that no concurrent changes are lost.
//!
//! # Locking
//! The list of hidden names has a mutex, held only while it is changed. A new file is locked for writing from the
//! moment it exists. The file that it replaces is locked until then (`lock`).

use std::fs::{File, OpenOptions as StdOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, RenameFlags, linkat, rename, renameat_with};
use rustix::io::Errno;

use crate::file::FileDevice;
use crate::lock::{LockMode, is_at_path, open_locked};
use crate::open::OpenOptions;
use crate::open_error::OpenError;

/// Hidden names of new files that are not complete yet.
static HIDDEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The lock on a file that is to be replaced, if there is one at the path.
#[derive(Debug)]
pub struct ReplacedFile {
    path: PathBuf,
    wait: Option<Duration>,
    locked: Mutex<Option<File>>,
}

impl ReplacedFile {
    /// Locks the file at `path`, if there is one. If another program has locked it, waits for `wait`.
    ///
    /// # Errors
    /// [`OpenError::NotAFile`] unless it is a regular file; the errors of [`open_locked`].
    pub fn lock(path: &Path, wait: Option<Duration>) -> Result<Self, OpenError> {
        let locked = Self::lock_existing(path, wait)?.into();
        Ok(Self { path: path.to_owned(), wait, locked })
    }

    fn lock_existing(path: &Path, wait: Option<Duration>) -> Result<Option<File>, OpenError> {
        match std::fs::metadata(path) {
            // A dangling symbolic link is itself replaced.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::io(path, error)),
            Ok(found) if !found.is_file() => Err(OpenError::NotAFile { path: path.to_owned() }),
            Ok(_) => open_locked(path, LockMode::Exclusive, wait).map(Some),
        }
    }

    /// Must be called before the file is replaced: if another file is at the path now, locks that one.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock), for the file that is there now.
    pub fn relock(&self) -> Result<(), OpenError> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = locked
            .as_ref()
            .is_some_and(|file| file.metadata().is_ok_and(|metadata| is_at_path(&self.path, &metadata)));
        if !is_same {
            *locked = Self::lock_existing(&self.path, self.wait)?;
        }
        Ok(())
    }
}

/// A file that does not have its name yet.
#[derive(Debug)]
pub struct NewFile {
    device: Arc<FileDevice>,
    path: PathBuf,
    /// The hidden name, if the file has one.
    hidden: Option<PathBuf>,
    /// The file that it replaces.
    replaced: Option<Arc<ReplacedFile>>,
}

impl NewFile {
    /// Creates a sparse file of `size` bytes that will be `path`. [`OpenOptions::io`] is ignored.
    ///
    /// # Errors
    /// [`OpenError::Make`], with `EEXIST` if `path` exists.
    pub fn create(path: &Path, size: u64, options: &OpenOptions) -> Result<Self, OpenError> {
        match path.symlink_metadata() {
            Ok(_) => Err(OpenError::make(path, Errno::EXIST)),
            Err(_) => Self::make(path, size, options, None),
        }
    }

    /// Creates a sparse file that will replace another.
    ///
    /// # Errors
    /// [`OpenError::Make`].
    pub fn replacing(
        replaced: &Arc<ReplacedFile>,
        size: u64,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        Self::make(&replaced.path, size, options, Some(Arc::clone(replaced)))
    }

    /// Creates a sparse file in the directory of `path` that never gets a name.
    ///
    /// # Errors
    /// [`OpenError::Make`].
    pub fn scratch(path: &Path, size: u64, options: &OpenOptions) -> Result<Self, OpenError> {
        Self::make(path, size, options, None)
    }

    fn make(
        path: &Path,
        size: u64,
        options: &OpenOptions,
        replaced: Option<Arc<ReplacedFile>>,
    ) -> Result<Self, OpenError> {
        if i64::try_from(size).is_err() {
            return Err(OpenError::make(path, Errno::FBIG));
        }
        let (file, hidden) = open_nameless(path, options).map_err(|error| OpenError::make(path, error))?;
        let prepared = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.set_len(size));
        if let Err(error) = prepared {
            remove(hidden.as_deref());
            return Err(OpenError::make(path, error));
        }
        let device = Arc::new(FileDevice::temporary(file, path, size, options));
        Ok(Self { device, path: path.to_owned(), hidden, replaced })
    }

    /// Removes all new files that are not complete: for a program that is about to exit without dropping them, as on a
    /// signal.
    pub fn remove_unfinished() {
        let hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hidden.iter().for_each(|path| {
            let _ = std::fs::remove_file(path);
        });
    }

    /// The device for the contents of the file.
    pub fn device(&self) -> &Arc<FileDevice> {
        &self.device
    }

    /// Makes the file stable, gives it its name and closes it.
    ///
    /// # Errors
    /// [`OpenError::Make`], with `EEXIST` if another file got the name meanwhile; the errors of
    /// [`ReplacedFile::relock`].
    pub fn publish(mut self) -> Result<(), OpenError> {
        if let Some(replaced) = &self.replaced {
            replaced.relock()?;
        }
        self.device.make_stable().map_err(|error| OpenError::make(&self.path, error))?;
        self.link().map_err(|errno| OpenError::make(&self.path, errno))?;
        // The name is stable once its directory is flushed. If that is not possible, nothing more can be done.
        if let Ok(parent) = File::open(parent_of(&self.path)) {
            let _ = parent.sync_all();
        }
        Ok(())
    }

    fn link(&mut self) -> rustix::io::Result<()> {
        let nameless = descriptor_path(self.device.file());
        if self.replaced.is_none() {
            match &self.hidden {
                // Without O_TMPFILE there may be no hard links either, as on FAT.
                Some(hidden) => match renameat_with(CWD, hidden, CWD, &self.path, RenameFlags::NOREPLACE) {
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        linkat(CWD, hidden, CWD, &self.path, AtFlags::empty())?
                    }
                    renamed => renamed?,
                },
                None => linkat(CWD, nameless, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?,
            }
            remove(self.hidden.take().as_deref());
            return Ok(());
        }
        // `rename` needs a name.
        let hidden = match &self.hidden {
            Some(hidden) => hidden.clone(),
            None => {
                let hidden = hidden_name(&self.path).map_err(|_| Errno::INVAL)?;
                register(&hidden);
                linkat(CWD, nameless, CWD, &hidden, AtFlags::SYMLINK_FOLLOW)?;
                self.hidden.insert(hidden).clone()
            }
        };
        rename(&hidden, &self.path)?;
        unregister(&hidden);
        self.hidden = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        remove(self.hidden.take().as_deref());
    }
}

/// Removes a hidden file, if it exists.
fn remove(hidden: Option<&Path>) {
    if let Some(hidden) = hidden {
        let _ = std::fs::remove_file(hidden);
        unregister(hidden);
    }
}

/// Adds a name to [`HIDDEN`], before the file is created.
fn register(hidden: &Path) {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).push(hidden.to_owned());
}

/// Removes a name from [`HIDDEN`].
fn unregister(hidden: &Path) {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| path != hidden);
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path by which a nameless file can be linked.
fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Creates a file without a name in the directory of `path`, or with a hidden name if `O_TMPFILE` is not supported.
fn open_nameless(path: &Path, options: &OpenOptions) -> io::Result<(File, Option<PathBuf>)> {
    let direct = if options.direct { OFlags::DIRECT.bits() as i32 } else { 0 };
    let flags = OFlags::TMPFILE.bits() as i32 | direct;
    let nameless = StdOptions::new().read(true).write(true).custom_flags(flags).open(parent_of(path));
    if let Ok(file) = nameless
        && descriptor_path(&file).exists()
    {
        return Ok((file, None));
    }
    let hidden = hidden_name(path)?;
    register(&hidden);
    let file = StdOptions::new().read(true).write(true).create_new(true).custom_flags(direct).open(&hidden);
    match file {
        Ok(file) => Ok((file, Some(hidden))),
        Err(error) => {
            unregister(&hidden);
            Err(error)
        }
    }
}

/// A unique hidden name in the directory of `path`.
fn hidden_name(path: &Path) -> io::Result<PathBuf> {
    /// A process may create several files at once for one name: a disk, and the container for it.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let count = COUNT.fetch_add(1, Relaxed);
    Ok(parent_of(path).join(format!(".{name}.{}-{count}.new", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Durability};

    fn writable() -> OpenOptions {
        OpenOptions { writable: true, ..OpenOptions::default() }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_gets_its_name_when_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let new = NewFile::create(&path, 1 << 20, &writable()).unwrap();
        new.device().write_at(4096, b"here", Durability::Buffered).unwrap();
        assert!(!path.exists());
        new.publish().unwrap();
        assert_eq!(names(directory.path()), ["image"]);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[4096..4100]), (1 << 20, b"here".as_slice()));
    }

    /// tmpfs does not support uncached I/O, most other file systems do.
    #[test]
    fn uncached_writes_are_complete() {
        let bytes: Vec<u8> = (0..3u32 << 20).map(|n| (n / 1000 * 7) as u8).collect();
        let (first, rest) = bytes.split_at(1 << 20);
        let (second, third) = rest.split_at((1 << 20) + 77);
        for directory in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
            let Ok(directory) = tempfile::tempdir_in(directory) else { continue };
            let path = directory.path().join("image");
            let options = OpenOptions { uncached: true, ..writable() };
            let new = NewFile::create(&path, 4 << 20, &options).unwrap();
            new.device().write_vectored(1000 + first.len() as u64, &[second, third]).unwrap();
            new.device().write_at(1000, first, Durability::Buffered).unwrap();
            let mut found = vec![0; bytes.len()];
            new.device().read_at(1000, &mut found).unwrap();
            assert!(found == bytes);
            new.publish().unwrap();
            assert!(std::fs::read(&path).unwrap()[1000..][..bytes.len()] == bytes);
        }
    }

    #[test]
    fn a_dropped_file_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        drop(NewFile::create(&directory.path().join("image"), 4096, &writable()).unwrap());
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn an_existing_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let new = NewFile::create(&path, 4096, &writable()).unwrap();
        std::fs::write(&path, b"mine").unwrap();
        let error = NewFile::create(&path, 4096, &writable()).unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::EXIST.raw_os_error());
        let error = new.publish().unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::EXIST.raw_os_error());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(names(directory.path()), ["image"]);
    }

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::write(&path, b"old").unwrap();
        let replaced = Arc::new(ReplacedFile::lock(&path, None).unwrap());
        let new = NewFile::replacing(&replaced, 4096, &writable()).unwrap();
        drop(NewFile::replacing(&replaced, 4096, &writable()).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        new.publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
        assert_eq!(names(directory.path()), ["image"]);
    }

    /// `create --force` replaced a mounted image: later writes of the mount went to the deleted file.
    #[test]
    fn a_file_in_use_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::write(&path, b"old").unwrap();
        let writer = FileDevice::open(&path, &writable()).unwrap();
        let refused = ReplacedFile::lock(&path, None).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        drop(writer);
        let replaced = Arc::new(ReplacedFile::lock(&path, None).unwrap());
        let refused = FileDevice::open(&path, &writable()).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        // Another file gets the name while the new one is written, and is opened for writing.
        let new = NewFile::replacing(&replaced, 4096, &writable()).unwrap();
        std::fs::write(directory.path().join("other"), b"newer").unwrap();
        std::fs::rename(directory.path().join("other"), &path).unwrap();
        let writer = FileDevice::open(&path, &writable()).unwrap();
        let refused = new.publish().unwrap_err();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        assert_eq!(
            (std::fs::read(&path).unwrap().as_slice(), names(directory.path()).len()),
            (&b"newer"[..], 1)
        );
        drop(writer);
        NewFile::replacing(&replaced, 4096, &writable()).unwrap().publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
        let refused = ReplacedFile::lock(Path::new("/dev/null"), None).unwrap_err();
        assert!(matches!(refused, OpenError::NotAFile { .. }), "{refused}");
    }
}
