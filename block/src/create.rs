//! A new image file that gets its name only when it is finished.
//!
//! # Invariants
//! - Until [`NewFile::publish`] nothing lies under the final name; what is dropped before leaves nothing behind, even
//!   where the process is killed (but for file systems without nameless files, where a hidden file may stay).
//! - Until then nothing of it needs to survive a power cut, and nothing is made stable; what gets the name is.
//! - An existing file is replaced only where that was asked for, and then by one step. From the claim on
//!   ([`Replaced`]) nobody else writes to it, so that nothing is lost that somebody writes meanwhile.
//!
//! # Locking
//! The list of hidden names is locked for as long as it takes to change it. The file is locked for writing from its
//! first moment, and stays so when it gets its name. What it replaces is locked until then, too (`lock`).

use std::fs::{File, OpenOptions as StdOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation};

use crate::file::{FileDevice, OpenOptions};
use crate::lock::{Share, is_still, open_locked};
use crate::open_error::OpenError;

/// Hidden names of files that are being made.
static HIDDEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A name that a new file is to take, whoever has it, and what has it now: nobody else writes to that.
#[derive(Debug)]
pub struct Replaced {
    path: PathBuf,
    wait: Option<Duration>,
    held: Mutex<Option<File>>,
}

impl Replaced {
    /// Locks the file at `path`, if there is one. If another program has it locked, waits for as long as `wait` says.
    ///
    /// # Errors
    /// [`OpenError::NotAFile`] for a device, a directory and anything else that is no regular file; otherwise those of
    /// [`open_locked`].
    pub fn claim(path: &Path, wait: Option<Duration>) -> Result<Self, OpenError> {
        let held = Self::hold(path, wait)?.into();
        Ok(Self { path: path.to_owned(), wait, held })
    }

    fn hold(path: &Path, wait: Option<Duration>) -> Result<Option<File>, OpenError> {
        match std::fs::metadata(path) {
            // A link that leads nowhere is replaced by itself.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::io(path, error)),
            Ok(found) if !found.is_file() => Err(OpenError::NotAFile { path: path.to_owned() }),
            Ok(_) => open_locked(path, Share::Nobody, wait).map(Some),
        }
    }

    /// Asked before the file is replaced: locks the file that is at the path now, if that is another one.
    ///
    /// # Errors
    /// Those of [`claim`](Self::claim), for the file that is there now.
    pub fn renew(&self) -> Result<(), OpenError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let same =
            held.as_ref().is_some_and(|file| file.metadata().is_ok_and(|old| is_still(&self.path, &old)));
        if !same {
            *held = Self::hold(&self.path, self.wait)?;
        }
        Ok(())
    }
}

/// A file that does not have its name yet.
#[derive(Debug)]
pub struct NewFile {
    device: Arc<FileDevice>,
    path: PathBuf,
    /// The hidden name, where the file needs one.
    hidden: Option<PathBuf>,
    /// What has the name goes away.
    replaced: Option<Arc<Replaced>>,
}

impl NewFile {
    /// A sparse file of `size` bytes that will be `path`. [`OpenOptions::io`] is not looked at.
    ///
    /// # Errors
    /// [`OpenError::Make`], with `EEXIST` where something has the name already.
    pub fn create(path: &Path, size: u64, options: &OpenOptions) -> Result<Self, OpenError> {
        match path.symlink_metadata() {
            Ok(_) => Err(OpenError::make(path, rustix::io::Errno::EXIST)),
            Err(_) => Self::make(path, size, options, None),
        }
    }

    /// The same, but what has the name by then is replaced by the finished file in one step.
    ///
    /// # Errors
    /// [`OpenError::Make`].
    pub fn replacing(replaced: &Arc<Replaced>, size: u64, options: &OpenOptions) -> Result<Self, OpenError> {
        Self::make(&replaced.path, size, options, Some(Arc::clone(replaced)))
    }

    /// A file beside `path` that never gets a name.
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
        replaced: Option<Arc<Replaced>>,
    ) -> Result<Self, OpenError> {
        if i64::try_from(size).is_err() {
            return Err(OpenError::make(path, rustix::io::Errno::FBIG));
        }
        let (file, hidden) = open_nameless(path, options).map_err(|error| OpenError::make(path, error))?;
        let prepared = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.set_len(size));
        if let Err(error) = prepared {
            remove(hidden.as_deref());
            return Err(OpenError::make(path, error));
        }
        let device = Arc::new(FileDevice::over_new(file, path, size, options));
        Ok(Self { device, path: path.to_owned(), hidden, replaced })
    }

    /// Takes away everything of all files that are not finished: for a program that is about to end without giving them
    /// up one by one, as on a signal.
    pub fn abandon_all() {
        let hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hidden.iter().for_each(|path| {
            let _ = std::fs::remove_file(path);
        });
    }

    /// The device that it already is.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }

    /// The same for whoever keeps it longer.
    pub fn shared_device(&self) -> Arc<FileDevice> {
        Arc::clone(&self.device)
    }

    /// Gives the file its name. It stays open for nobody: to write on, open it by its name.
    ///
    /// # Errors
    /// [`OpenError::Make`], with `EEXIST` where something took the name meanwhile; where it may be replaced, what
    /// [`Replaced::renew`] says of that.
    pub fn publish(mut self) -> Result<(), OpenError> {
        if let Some(replaced) = &self.replaced {
            replaced.renew()?;
        }
        self.device.settle().map_err(|error| OpenError::io(&self.path, error))?;
        self.name().map_err(|errno| OpenError::io(&self.path, errno))?;
        // The name is durable when its directory is; where a directory cannot be flushed, nobody can do more.
        if let Ok(folder) = File::open(folder_of(&self.path)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    fn name(&mut self) -> rustix::io::Result<()> {
        use rustix::fs::{AtFlags, linkat, rename};
        let nameless = descriptor_path(self.device.file());
        if self.replaced.is_none() {
            match &self.hidden {
                Some(hidden) => linkat(CWD, hidden, CWD, &self.path, AtFlags::empty())?,
                None => linkat(CWD, nameless, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?,
            }
            remove(self.hidden.take().as_deref());
            return Ok(());
        }
        // Only what has a name can take another's place.
        let hidden = match &self.hidden {
            Some(hidden) => hidden.clone(),
            None => {
                let hidden = hidden_name(&self.path).map_err(|_| rustix::io::Errno::INVAL)?;
                note(&hidden);
                linkat(CWD, nameless, CWD, &hidden, AtFlags::SYMLINK_FOLLOW)?;
                self.hidden.insert(hidden).clone()
            }
        };
        rename(&hidden, &self.path)?;
        forget(&hidden);
        self.hidden = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        remove(self.hidden.take().as_deref());
    }
}

/// What is left of a file that was never finished; it may be gone already.
fn remove(hidden: Option<&Path>) {
    if let Some(hidden) = hidden {
        let _ = std::fs::remove_file(hidden);
        forget(hidden);
    }
}

/// A hidden name is about to exist.
fn note(hidden: &Path) {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).push(hidden.to_owned());
}

/// It is gone.
fn forget(hidden: &Path) {
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| path != hidden);
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The name by which the system lets a nameless file be linked.
fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A file without a name in the folder of `path`, or with a hidden one where there are no such files.
fn open_nameless(path: &Path, options: &OpenOptions) -> io::Result<(File, Option<PathBuf>)> {
    let folder = folder_of(path);
    let direct = if options.direct { rustix::fs::OFlags::DIRECT.bits() as i32 } else { 0 };
    #[cfg(target_os = "linux")]
    {
        let flags = rustix::fs::OFlags::TMPFILE.bits() as i32 | direct;
        let nameless = StdOptions::new().read(true).write(true).custom_flags(flags).open(folder);
        if let Ok(file) = nameless
            && descriptor_path(&file).exists()
        {
            return Ok((file, None));
        }
    }
    let hidden = hidden_name(path)?;
    note(&hidden);
    let file = StdOptions::new().read(true).write(true).create_new(true).custom_flags(direct).open(&hidden);
    match file {
        Ok(file) => Ok((file, Some(hidden))),
        Err(error) => {
            forget(&hidden);
            Err(error)
        }
    }
}

/// A name of our own beside that of `path`.
fn hidden_name(path: &Path) -> io::Result<PathBuf> {
    /// A process may make several files at once for one name: a disk, and the container that it goes into.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let count = COUNT.fetch_add(1, Relaxed);
    Ok(folder_of(path).join(format!(".{name}.{}-{count}.new", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Durability};

    fn writable() -> OpenOptions {
        OpenOptions { writable: true, ..OpenOptions::default() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_name_appears_when_the_file_is_finished_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let new = NewFile::create(&path, 1 << 20, &writable()).unwrap();
        new.device().write_at(4096, b"here", Durability::Buffered).unwrap();
        assert!(!path.exists());
        new.publish().unwrap();
        assert_eq!(names(folder.path()), ["image"]);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[4096..4100]), (1 << 20, b"here".as_slice()));
    }

    /// Most disks have writes that leave no pages behind; memory does not, and takes them all the same.
    #[test]
    fn what_only_passes_the_page_cache_is_there_afterwards() {
        let bytes: Vec<u8> = (0..3u32 << 20).map(|n| (n / 1000 * 7) as u8).collect();
        let (first, rest) = bytes.split_at(1 << 20);
        let (second, third) = rest.split_at((1 << 20) + 77);
        for folder in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
            let Ok(folder) = tempfile::tempdir_in(folder) else { continue };
            let path = folder.path().join("image");
            let options = OpenOptions { passing: true, ..writable() };
            let new = NewFile::create(&path, 4 << 20, &options).unwrap();
            new.device().write_vectored(1000 + first.len() as u64, &[second, third]).unwrap();
            new.device().write_at(1000, first, Durability::Buffered).unwrap();
            let mut there = vec![0; bytes.len()];
            new.device().read_at(1000, &mut there).unwrap();
            assert!(there == bytes);
            new.publish().unwrap();
            assert!(std::fs::read(&path).unwrap()[1000..][..bytes.len()] == bytes);
        }
    }

    #[test]
    fn what_is_dropped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        drop(NewFile::create(&folder.path().join("image"), 4096, &writable()).unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_exists_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let new = NewFile::create(&path, 4096, &writable()).unwrap();
        std::fs::write(&path, b"mine").unwrap();
        let error = NewFile::create(&path, 4096, &writable()).unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::EXIST.raw_os_error());
        let error = new.publish().unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::EXIST.raw_os_error());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(names(folder.path()), ["image"]);
    }
    #[test]
    fn what_shall_be_replaced_is_there_until_the_new_file_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, b"old").unwrap();
        let claim = Arc::new(Replaced::claim(&path, None).unwrap());
        let new = NewFile::replacing(&claim, 4096, &writable()).unwrap();
        drop(NewFile::replacing(&claim, 4096, &writable()).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        new.publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
        assert_eq!(names(folder.path()), ["image"]);
    }

    /// `create --force` replaced an image that was mounted: what was written from then on went to a file without a
    /// name.
    #[test]
    fn nothing_is_replaced_that_somebody_writes_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, b"old").unwrap();
        let writer = FileDevice::open(&path, &writable()).unwrap();
        let refused = Replaced::claim(&path, None).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        drop(writer);
        let claim = Arc::new(Replaced::claim(&path, None).unwrap());
        let refused = FileDevice::open(&path, &writable()).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        // Another file takes the name while the new one is made, and somebody writes to it.
        let new = NewFile::replacing(&claim, 4096, &writable()).unwrap();
        std::fs::write(folder.path().join("other"), b"newer").unwrap();
        std::fs::rename(folder.path().join("other"), &path).unwrap();
        let writer = FileDevice::open(&path, &writable()).unwrap();
        let refused = new.publish().unwrap_err();
        assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
        assert_eq!(
            (std::fs::read(&path).unwrap().as_slice(), names(folder.path()).len()),
            (&b"newer"[..], 1)
        );
        drop(writer);
        NewFile::replacing(&claim, 4096, &writable()).unwrap().publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
        let refused = Replaced::claim(Path::new("/dev/null"), None).unwrap_err();
        assert!(matches!(refused, OpenError::NotAFile { .. }), "{refused}");
    }
}
