//! A volume of Xebec or of the kernel, with the operations that both have.

mod mount;
mod paths;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use block::{Device, FileDevice, Io};
pub use mount::{DeviceWrites, Mount};
use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use xebec::{FileId, NewFile, Options, SetAttribute, Volume};

/// Options of `mkfs` for an image.
pub fn layout(bytes: u64, log_bytes: u64) -> mkfs::Options {
    let log = mkfs::LogOptions { size: Some(log_bytes), ..mkfs::LogOptions::default() };
    mkfs::Options { size: Some(bytes), ag_count: Some(4), log, ..mkfs::Options::default() }
}

/// Names for the files of a directory, formatted before the measurement.
pub fn names(files: u32) -> Vec<String> {
    (0..files).map(|file| format!("file{file:06}")).collect()
}

/// Creates an image, replacing an existing one.
pub fn make(path: &Path, options: &mkfs::Options) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(options.size.context("the size of an image")?)?;
    drop(file);
    mkfs::format(&*file_device(path)?, options)?;
    Ok(())
}

/// The device of an image.
pub fn file_device(path: &Path) -> anyhow::Result<Arc<dyn Device>> {
    let options = block::OpenOptions { io: Io::Pread, writable: true, ..block::OpenOptions::default() };
    Ok(Arc::new(FileDevice::open(path, &options)?))
}

/// A volume with an image of its own.
pub enum BenchVolume {
    /// Xebec, in this process.
    Xebec(Box<Volume>),
    /// A directory of a mounted file system.
    Kernel(Mount),
}

/// A directory of a [`BenchVolume`].
pub enum BenchDir {
    Xebec(FileId),
    Kernel(OwnedFd),
}

impl BenchVolume {
    /// Creates an image and opens it with Xebec.
    pub fn xebec(path: &Path, layout: &mkfs::Options, options: Options) -> anyhow::Result<Self> {
        make(path, layout)?;
        Ok(Self::Xebec(Box::new(Volume::open(file_device(path)?, options)?)))
    }

    /// Creates an image and mounts it.
    pub fn kernel(path: &Path, layout: &mkfs::Options) -> anyhow::Result<Self> {
        make(path, layout)?;
        Ok(Self::Kernel(Mount::new(path)?))
    }

    /// Opens the volume of a device with Xebec.
    pub fn on(device: Arc<dyn Device>, options: Options) -> anyhow::Result<Self> {
        Ok(Self::Xebec(Box::new(Volume::open(device, options)?)))
    }

    /// Creates an image and mounts it by a program `xebec`.
    pub fn fuse(xebec: &Path, path: &Path, layout: &mkfs::Options) -> anyhow::Result<Self> {
        make(path, layout)?;
        Ok(Self::Kernel(Mount::fuse(xebec, path)?))
    }

    /// A new directory within one of a mounted file system.
    pub fn directory(parent: &Path) -> anyhow::Result<Self> {
        Ok(Self::Kernel(Mount::directory(parent)?))
    }

    /// Mounts a tmpfs.
    pub fn tmpfs() -> anyhow::Result<Self> {
        Ok(Self::Kernel(Mount::tmpfs()?))
    }

    /// Opens an existing image with Xebec.
    pub fn open(path: &Path, options: Options) -> anyhow::Result<Self> {
        Ok(Self::Xebec(Box::new(open(path, options)?)))
    }

    /// Mounts an existing image.
    pub fn mount(path: &Path) -> anyhow::Result<Self> {
        Ok(Self::Kernel(Mount::new(path)?))
    }

    /// The volume, if it is Xebec's.
    pub fn volume(&self) -> Option<&Volume> {
        match self {
            Self::Xebec(volume) => Some(volume),
            Self::Kernel(_) => None,
        }
    }

    /// The directory of the mount, if there is one.
    pub fn mount_point(&self) -> Option<&Path> {
        match self {
            Self::Xebec(_) => None,
            Self::Kernel(mount) => Some(mount.folder()),
        }
    }

    /// What was written to the device of a mount, as the kernel counts it.
    pub fn device_writes(&self) -> anyhow::Result<DeviceWrites> {
        match self {
            Self::Xebec(_) => bail!("not a mount"),
            Self::Kernel(mount) => mount.device_writes(),
        }
    }

    /// The root directory.
    pub fn root(&self) -> anyhow::Result<BenchDir> {
        match self {
            Self::Xebec(volume) => Ok(BenchDir::Xebec(volume.root())),
            Self::Kernel(mount) => Ok(BenchDir::Kernel(File::open(mount.folder())?.into())),
        }
    }

    /// Opens a file for reading and writing, or creates it.
    pub fn file(&self, dir: &BenchDir, name: &str, create: bool) -> anyhow::Result<BenchFile<'_>> {
        match (self, dir) {
            (Self::Xebec(volume), BenchDir::Xebec(dir)) => {
                let ino = match create {
                    true => volume.create(*dir, name.as_bytes(), &NewFile::regular())?,
                    false => volume.lookup(*dir, name.as_bytes())?,
                };
                Ok(BenchFile::Xebec(volume.open_file(ino)?))
            }
            (Self::Kernel(_), BenchDir::Kernel(dir)) => {
                let create = if create { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
                let mode = Mode::from_raw_mode(0o644);
                let file = rustix::fs::openat(dir.as_fd(), name, create | OFlags::RDWR, mode)?;
                Ok(BenchFile::Kernel(file.into()))
            }
            _ => bail!("a directory of another volume"),
        }
    }

    /// Syncs the volume.
    pub fn sync(&self) -> anyhow::Result<()> {
        match self {
            Self::Xebec(volume) => Ok(volume.sync()?),
            Self::Kernel(mount) => Ok(rustix::fs::syncfs(File::open(mount.folder())?)?),
        }
    }

    /// Creates a directory in the root.
    pub fn mkdir(&self, name: &str) -> anyhow::Result<BenchDir> {
        match self {
            Self::Xebec(volume) => {
                Ok(BenchDir::Xebec(volume.create(volume.root(), name.as_bytes(), &NewFile::directory())?))
            }
            Self::Kernel(mount) => {
                let path = mount.folder().join(name);
                std::fs::create_dir(&path)?;
                Ok(BenchDir::Kernel(File::open(path)?.into()))
            }
        }
    }

    /// Opens a directory in the root.
    pub fn dir(&self, name: &str) -> anyhow::Result<BenchDir> {
        match self {
            Self::Xebec(volume) => Ok(BenchDir::Xebec(volume.lookup(volume.root(), name.as_bytes())?)),
            Self::Kernel(mount) => Ok(BenchDir::Kernel(File::open(mount.folder().join(name))?.into())),
        }
    }

    /// Creates a directory and its parents at a path from the root.
    pub fn mkdir_all(&self, path: &str) -> anyhow::Result<BenchDir> {
        match self {
            Self::Xebec(volume) => {
                Ok(BenchDir::Xebec(volume.create_dir_all(path.as_bytes(), &NewFile::directory())?))
            }
            Self::Kernel(mount) => {
                let path = mount.folder().join(path);
                std::fs::create_dir_all(&path)?;
                Ok(BenchDir::Kernel(File::open(path)?.into()))
            }
        }
    }

    /// Creates an empty file.
    pub fn create(&self, dir: &BenchDir, name: &str) -> anyhow::Result<()> {
        match (self, dir) {
            (Self::Xebec(volume), BenchDir::Xebec(dir)) => {
                volume.create(*dir, name.as_bytes(), &NewFile::regular())?;
            }
            (Self::Kernel(_), BenchDir::Kernel(dir)) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                rustix::fs::openat(dir.as_fd(), name, flags, Mode::from_raw_mode(0o644))?;
            }
            _ => bail!("a directory of another volume"),
        }
        Ok(())
    }

    /// Removes a file.
    pub fn unlink(&self, dir: &BenchDir, name: &str) -> anyhow::Result<()> {
        match (self, dir) {
            (Self::Xebec(volume), BenchDir::Xebec(dir)) => volume.unlink(*dir, name.as_bytes())?,
            (Self::Kernel(_), BenchDir::Kernel(dir)) => {
                rustix::fs::unlinkat(dir.as_fd(), name, AtFlags::empty())?
            }
            _ => bail!("a directory of another volume"),
        }
        Ok(())
    }

    /// Unmounts the volume.
    pub fn unmount(self) -> anyhow::Result<()> {
        match self {
            Self::Xebec(volume) => Ok(volume.unmount()?),
            Self::Kernel(mount) => mount.unmount(),
        }
    }
}

/// An open file of a [`BenchVolume`].
pub enum BenchFile<'v> {
    Xebec(xebec::File<'v>),
    Kernel(File),
}

impl BenchFile<'_> {
    /// Writes all bytes.
    pub fn write(&self, buf: &[u8], offset: u64) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) if file.write_at(buf, offset)? == buf.len() => Ok(()),
            Self::Xebec(_) => bail!("the volume is full"),
            Self::Kernel(file) => Ok(file.write_all_at(buf, offset)?),
        }
    }

    /// Fills the buffer.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) if file.read_at(buf, offset)? == buf.len() => Ok(()),
            Self::Xebec(_) => bail!("the file is too short"),
            Self::Kernel(file) => Ok(file.read_exact_at(buf, offset)?),
        }
    }

    /// Changes the size.
    pub fn truncate(&self, bytes: u64) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) => Ok(file.set_len(bytes)?),
            Self::Kernel(file) => Ok(file.set_len(bytes)?),
        }
    }

    /// `fsync`.
    pub fn sync(&self) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) => Ok(file.sync_all()?),
            Self::Kernel(file) => Ok(file.sync_all()?),
        }
    }

    /// Sets an attribute, existing or not.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) => {
                Ok(file.volume().set_attribute(file.id(), name.as_bytes(), value, SetAttribute::Any)?)
            }
            Self::Kernel(file) => Ok(rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())?),
        }
    }
}

/// Copies a file of the host, sparse and shared if possible.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = crate::child::command("cp")
        .args(["--sparse=always", "--reflink=auto"])
        .args([from, to])
        .status()
        .context("cp")?;
    if !status.success() {
        bail!("{} cannot be copied", from.display());
    }
    Ok(())
}

/// Opens an existing image with Xebec.
pub fn open(path: &Path, options: Options) -> anyhow::Result<Volume> {
    OpenOptions::new().read(true).open(path).with_context(|| path.display().to_string())?;
    Ok(Volume::open(file_device(path)?, options)?)
}
