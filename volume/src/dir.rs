//! Open directories.

use base::{Ino, errno};
use format::inode::FileType;

use crate::{Cookie, DirEntry, Error, Handle, Metadata, NewFile, Result, Volume};

/// An open directory. Names are relative to it, also after it was moved. It keeps a reference to the directory, even if
/// that was removed.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{Dir, NewFile, Options, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let etc = Dir::open(&volume, b"/")?.create_dir(b"etc", &NewFile::directory())?;
/// etc.create(b"motd", &NewFile::regular())?;
/// etc.create(b"issue", &NewFile::symlink(b"motd"))?;
/// let mut names: Vec<Vec<u8>> = etc.entries()?.into_iter().map(|(name, _)| name).collect();
/// names.sort();
/// assert_eq!(names, [b"issue".to_vec(), b"motd".to_vec()]);
/// etc.remove(b"issue")?;
/// assert!(etc.lookup(b"issue").is_err());
/// # drop(etc);
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dir<'v> {
    volume: &'v Volume,
    handle: Handle,
}

impl<'v> Dir<'v> {
    /// Opens a directory by its path.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`; damage.
    pub fn open(volume: &'v Volume, path: &[u8]) -> Result<Self> {
        Self::of(volume, volume.resolve_handle(path, true)?)
    }

    /// Opens a directory by its inode number.
    ///
    /// # Errors
    /// `ENOENT` if the inode is free, `ENOTDIR` for other files.
    pub fn open_ino(volume: &'v Volume, ino: Ino) -> Result<Self> {
        Self::of(volume, volume.open_ino(ino)?)
    }

    fn of(volume: &'v Volume, handle: Handle) -> Result<Self> {
        if !handle.is(FileType::Directory) {
            return Err(Error::refused(errno::ENOTDIR, "not a directory"));
        }
        Ok(Self { volume, handle })
    }

    /// Inode number of the directory.
    pub fn ino(&self) -> Ino {
        self.handle.ino()
    }

    /// Metadata of the directory.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self) -> Result<Metadata> {
        self.volume.metadata(self.ino())
    }

    /// Looks up a name.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn lookup(&self, name: &[u8]) -> Result<Ino> {
        self.volume.lookup(self.ino(), name)
    }

    /// Returns the names and inode numbers of all entries except `.` and `..`.
    ///
    /// # Errors
    /// Damage.
    pub fn entries(&self) -> Result<Vec<(Vec<u8>, Ino)>> {
        let mut entries = Vec::new();
        self.volume.read_dir(self.ino(), Cookie::default(), &mut |DirEntry { name, ino, .. }| {
            if !matches!(name, b"." | b"..") {
                entries.push((name.to_vec(), ino));
            }
            true
        })?;
        Ok(entries)
    }

    /// Creates a file.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create(&self, name: &[u8], new: &NewFile<'_>) -> Result<Ino> {
        self.volume.create(self.ino(), name, new)
    }

    /// Creates a directory and opens it.
    ///
    /// # Errors
    /// As [`Volume::create`]; `ENOTDIR` if `new` is not a directory.
    pub fn create_dir(&self, name: &[u8], new: &NewFile<'_>) -> Result<Self> {
        if !new.is_directory() {
            return Err(Error::refused(errno::ENOTDIR, "the new file is not a directory"));
        }
        Self::of(self.volume, self.volume.create_handle(self.ino(), name, new)?)
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; damage.
    pub fn open_dir(&self, name: &[u8]) -> Result<Self> {
        Self::of(self.volume, self.volume.lookup_handle(self.ino(), name)?)
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// As [`Volume::unlink`].
    pub fn remove(&self, name: &[u8]) -> Result<()> {
        self.volume.unlink(self.ino(), name)
    }

    /// Removes an empty subdirectory.
    ///
    /// # Errors
    /// As [`Volume::rmdir`].
    pub fn remove_dir(&self, name: &[u8]) -> Result<()> {
        self.volume.rmdir(self.ino(), name)
    }
}
