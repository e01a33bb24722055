//! Open directories.

use base::{Ino, errno};

use crate::operation::is_directory;
use crate::{Cookie, DirEntry, Error, Handle, Metadata, NewFile, Result, Volume};

/// An open directory, in the manner of `std::fs`: what is done here is done to what lies in it, wherever the directory
/// is moved. It keeps its directory, even one that was removed.
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
    /// Opens the directory that a path leads to.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`; damage.
    pub fn open(volume: &'v Volume, path: &[u8]) -> Result<Self> {
        Self::of(volume, volume.resolve_handle(path, true)?)
    }

    /// Opens a directory by its number.
    ///
    /// # Errors
    /// `ENOENT` where the inode is free, `ENOTDIR` where it is none.
    pub fn open_ino(volume: &'v Volume, ino: Ino) -> Result<Self> {
        Self::of(volume, volume.open_ino(ino)?)
    }

    fn of(volume: &'v Volume, handle: Handle) -> Result<Self> {
        if !is_directory(&handle.inode().read()) {
            return Err(Error::refused(errno::ENOTDIR, "not a directory"));
        }
        Ok(Self { volume, handle })
    }

    /// The directory's number.
    pub fn ino(&self) -> Ino {
        self.handle.ino()
    }

    /// What is known of it.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self) -> Result<Metadata> {
        self.volume.metadata(self.ino())
    }

    /// What a name in it stands for.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn lookup(&self, name: &[u8]) -> Result<Ino> {
        self.volume.lookup(self.ino(), name)
    }

    /// All names in it with what they stand for, without `.` and `..`.
    ///
    /// # Errors
    /// Damage.
    pub fn entries(&self) -> Result<Vec<(Vec<u8>, Ino)>> {
        let mut all = Vec::new();
        self.volume.read_dir(self.ino(), Cookie::default(), &mut |DirEntry { name, ino, .. }| {
            if !matches!(name, b"." | b"..") {
                all.push((name.to_vec(), ino));
            }
            true
        })?;
        Ok(all)
    }

    /// Makes a file in it.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create(&self, name: &[u8], new: &NewFile<'_>) -> Result<Ino> {
        self.volume.create(self.ino(), name, new)
    }

    /// Makes a directory in it, and opens that.
    ///
    /// # Errors
    /// As [`Volume::create`]; `ENOTDIR` where `new` is none.
    pub fn create_dir(&self, name: &[u8], new: &NewFile<'_>) -> Result<Self> {
        if !matches!(new.file_type, crate::NewFileType::Directory) {
            return Err(Error::refused(errno::ENOTDIR, "what is to be made is no directory"));
        }
        Self::of(self.volume, self.volume.create_handle(self.ino(), name, new)?)
    }

    /// Opens a directory in it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; damage.
    pub fn open_dir(&self, name: &[u8]) -> Result<Self> {
        Self::of(self.volume, self.volume.lookup_handle(self.ino(), name)?)
    }

    /// Takes a name away from a file in it.
    ///
    /// # Errors
    /// As [`Volume::unlink`].
    pub fn remove(&self, name: &[u8]) -> Result<()> {
        self.volume.unlink(self.ino(), name)
    }

    /// Removes an empty directory in it.
    ///
    /// # Errors
    /// As [`Volume::rmdir`].
    pub fn remove_dir(&self, name: &[u8]) -> Result<()> {
        self.volume.rmdir(self.ino(), name)
    }
}
