//! A new image file that gets its name only when it is finished.
//!
//! # Invariants
//! - Until [`NewFile::publish`] nothing lies under the final name; what is dropped before leaves nothing behind, even
//!   where the process is killed (but for file systems without nameless files, where a hidden file may stay).
//! - An existing file is never replaced.
//!
//! # Locking
//! The file is locked for writing from its first moment, and stays so when it gets its name.

use std::fs::{File, OpenOptions as StdOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation};

use crate::file::{FileDevice, OpenOptions};
use crate::open_error::OpenError;

/// A file that does not have its name yet.
#[derive(Debug)]
pub struct NewFile {
    device: FileDevice,
    path: PathBuf,
    /// The hidden name, where the file needs one.
    hidden: Option<PathBuf>,
}

impl NewFile {
    /// A sparse file of `size` bytes that will be `path`. [`OpenOptions::io`] is not looked at.
    ///
    /// # Errors
    /// [`OpenError::Io`], with `EEXIST` where something has the name already.
    pub fn create(path: &Path, size: u64, options: &OpenOptions) -> Result<Self, OpenError> {
        if path.symlink_metadata().is_ok() {
            return Err(OpenError::io(
                path,
                io::Error::from_raw_os_error(rustix::io::Errno::EXIST.raw_os_error()),
            ));
        }
        let (file, hidden) = open_nameless(path, options).map_err(|error| OpenError::io(path, error))?;
        let prepared = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.set_len(size));
        if let Err(error) = prepared {
            remove(hidden.as_deref());
            return Err(OpenError::io(path, error));
        }
        let device = FileDevice::over_new(file, path, size, options.direct);
        Ok(Self { device, path: path.to_owned(), hidden })
    }

    /// The device that it already is.
    pub fn device(&self) -> &FileDevice {
        &self.device
    }

    /// Gives the file its name. It stays open for nobody: to write on, open it by its name.
    ///
    /// # Errors
    /// [`OpenError::Io`], with `EEXIST` where something took the name meanwhile.
    pub fn publish(mut self) -> Result<(), OpenError> {
        use rustix::fs::{AtFlags, linkat};
        let named = match &self.hidden {
            Some(hidden) => linkat(CWD, hidden, CWD, &self.path, AtFlags::empty()),
            None => {
                linkat(CWD, descriptor_path(self.device.file()), CWD, &self.path, AtFlags::SYMLINK_FOLLOW)
            }
        };
        named.map_err(|errno| OpenError::io(&self.path, errno))?;
        remove(self.hidden.take().as_deref());
        // The name is durable when its directory is; where a directory cannot be flushed, nobody can do more.
        if let Ok(folder) = File::open(folder_of(&self.path)) {
            let _ = folder.sync_all();
        }
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
    }
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
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let hidden = folder.join(format!(".{name}.{}.new", std::process::id()));
    let file =
        StdOptions::new().read(true).write(true).create_new(true).custom_flags(direct).open(&hidden)?;
    Ok((file, Some(hidden)))
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
}
