//! A volume on either side, and the changes that both can make.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use base::Ino;
use block::{Device, FileDevice};
use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use xebec::{NewFile, Options, SetAttribute, Volume};

/// What an image is made with.
pub fn layout(bytes: u64, log_bytes: u64) -> mkfs::Options {
    let log = mkfs::LogOptions { size: Some(log_bytes), ..mkfs::LogOptions::default() };
    mkfs::Options { size: Some(bytes), ag_count: Some(4), log, ..mkfs::Options::default() }
}

/// Names for the files of a directory, made beforehand: what is measured is not how a name is put together.
pub fn names(files: u32) -> Vec<String> {
    (0..files).map(|file| format!("file{file:06}")).collect()
}

/// Makes an image anew.
pub fn make(path: &Path, options: &mkfs::Options) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(options.size.context("the size of an image")?)?;
    drop(file);
    mkfs::format(&*device(path)?, options)?;
    Ok(())
}

fn device(path: &Path) -> anyhow::Result<Arc<dyn Device>> {
    let options = block::OpenOptions { writable: true, ..block::OpenOptions::default() };
    Ok(Arc::new(FileDevice::open(path, &options)?))
}

/// One of the two, with an image of its own.
pub enum Side {
    /// Ours, in this process.
    Xebec(Box<Volume>),
    /// The kernel's mount.
    Kernel(Mount),
}

/// A directory of a side.
pub enum Dir {
    Xebec(Ino),
    Kernel(OwnedFd),
}

impl Side {
    /// Makes an image and opens it with our engine.
    pub fn xebec(path: &Path, layout: &mkfs::Options, options: Options) -> anyhow::Result<Self> {
        make(path, layout)?;
        Ok(Self::Xebec(Box::new(Volume::open(device(path)?, options)?)))
    }

    /// Makes an image and mounts it.
    pub fn kernel(path: &Path, layout: &mkfs::Options) -> anyhow::Result<Self> {
        make(path, layout)?;
        Ok(Self::Kernel(Mount::new(path)?))
    }

    /// An image that exists, with our engine.
    pub fn open(path: &Path, options: Options) -> anyhow::Result<Self> {
        Ok(Self::Xebec(Box::new(open(path, options)?)))
    }

    /// An image that exists, mounted.
    pub fn mount(path: &Path) -> anyhow::Result<Self> {
        Ok(Self::Kernel(Mount::new(path)?))
    }

    /// The volume, if it is our side.
    pub fn volume(&self) -> Option<&Volume> {
        match self {
            Self::Xebec(volume) => Some(volume),
            Self::Kernel(_) => None,
        }
    }

    /// The root directory.
    pub fn root(&self) -> anyhow::Result<Dir> {
        match self {
            Self::Xebec(volume) => Ok(Dir::Xebec(volume.root())),
            Self::Kernel(mount) => Ok(Dir::Kernel(File::open(&mount.folder)?.into())),
        }
    }

    /// Opens a file for reading and writing; makes it if told so.
    pub fn file(&self, dir: &Dir, name: &str, create: bool) -> anyhow::Result<Opened<'_>> {
        match (self, dir) {
            (Self::Xebec(volume), Dir::Xebec(dir)) => {
                let ino = match create {
                    true => volume.create(*dir, name.as_bytes(), &NewFile::regular())?,
                    false => volume.lookup(*dir, name.as_bytes())?,
                };
                Ok(Opened::Xebec(volume.open_file(ino)?))
            }
            (Self::Kernel(_), Dir::Kernel(dir)) => {
                let create = if create { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
                let mode = Mode::from_raw_mode(0o644);
                let file = rustix::fs::openat(dir.as_fd(), name, create | OFlags::RDWR, mode)?;
                Ok(Opened::Kernel(file.into()))
            }
            _ => bail!("a directory of the other side"),
        }
    }

    /// Returns when everything is stable.
    pub fn sync(&self) -> anyhow::Result<()> {
        match self {
            Self::Xebec(volume) => Ok(volume.sync()?),
            Self::Kernel(mount) => Ok(rustix::fs::syncfs(File::open(&mount.folder)?)?),
        }
    }

    /// Makes a directory in the root.
    pub fn mkdir(&self, name: &str) -> anyhow::Result<Dir> {
        match self {
            Self::Xebec(volume) => {
                Ok(Dir::Xebec(volume.create(volume.root(), name.as_bytes(), &NewFile::directory())?))
            }
            Self::Kernel(mount) => {
                let path = mount.folder.join(name);
                std::fs::create_dir(&path)?;
                Ok(Dir::Kernel(File::open(path)?.into()))
            }
        }
    }

    /// Creates an empty file.
    pub fn create(&self, dir: &Dir, name: &str) -> anyhow::Result<()> {
        match (self, dir) {
            (Self::Xebec(volume), Dir::Xebec(dir)) => {
                volume.create(*dir, name.as_bytes(), &NewFile::regular())?;
            }
            (Self::Kernel(_), Dir::Kernel(dir)) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                rustix::fs::openat(dir.as_fd(), name, flags, Mode::from_raw_mode(0o644))?;
            }
            _ => bail!("a directory of the other side"),
        }
        Ok(())
    }

    /// Removes a file.
    pub fn unlink(&self, dir: &Dir, name: &str) -> anyhow::Result<()> {
        match (self, dir) {
            (Self::Xebec(volume), Dir::Xebec(dir)) => volume.unlink(*dir, name.as_bytes())?,
            (Self::Kernel(_), Dir::Kernel(dir)) => rustix::fs::unlinkat(dir.as_fd(), name, AtFlags::empty())?,
            _ => bail!("a directory of the other side"),
        }
        Ok(())
    }

    /// Ends cleanly.
    pub fn unmount(self) -> anyhow::Result<()> {
        match self {
            Self::Xebec(volume) => Ok(volume.unmount()?),
            Self::Kernel(mount) => mount.unmount(),
        }
    }
}

/// An open file of a side.
pub enum Opened<'v> {
    Xebec(xebec::File<'v>),
    Kernel(File),
}

impl Opened<'_> {
    /// Writes all of it.
    pub fn write(&self, buf: &[u8], offset: u64) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) if file.write_at(buf, offset)? == buf.len() => Ok(()),
            Self::Xebec(_) => bail!("the volume is full"),
            Self::Kernel(file) => Ok(file.write_all_at(buf, offset)?),
        }
    }

    /// Reads all of it.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) if file.read_at(buf, offset)? == buf.len() => Ok(()),
            Self::Xebec(_) => bail!("the file is too short"),
            Self::Kernel(file) => Ok(file.read_exact_at(buf, offset)?),
        }
    }

    /// `fsync`.
    pub fn sync(&self) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) => Ok(file.sync_all()?),
            Self::Kernel(file) => Ok(file.sync_all()?),
        }
    }

    /// Sets an attribute, whether it exists or not.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Xebec(file) => {
                Ok(file.volume().set_attribute(file.ino(), name.as_bytes(), value, SetAttribute::Any)?)
            }
            Self::Kernel(file) => Ok(rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())?),
        }
    }
}

/// A read-write loop mount; unmounted when dropped.
pub struct Mount {
    folder: PathBuf,
    mounted: bool,
}

impl Mount {
    fn new(image: &Path) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("xebec-bench-rw-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "xfs", "-o", "loop,nouuid"]).args([image, &folder]);
        if !mount.status().context("mount")?.success() {
            bail!("the kernel does not mount {}", image.display());
        }
        Ok(Self { folder, mounted: true })
    }

    fn unmount(mut self) -> anyhow::Result<()> {
        self.mounted = false;
        let status = std::process::Command::new("umount").arg(&self.folder).status().context("umount")?;
        if !status.success() {
            bail!("{} cannot be unmounted", self.folder.display());
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            // Our namespace takes care of what this cannot.
            let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.folder).status();
        }
    }
}

/// Opens a file on the host for sizes and copies.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = std::process::Command::new("cp")
        .args(["--sparse=always", "--reflink=auto"])
        .args([from, to])
        .status()
        .context("cp")?;
    if !status.success() {
        bail!("{} cannot be copied", from.display());
    }
    Ok(())
}

/// Opens an image that exists with our engine.
pub fn open(path: &Path, options: Options) -> anyhow::Result<Volume> {
    OpenOptions::new().read(true).open(path).with_context(|| path.display().to_string())?;
    Ok(Volume::open(device(path)?, options)?)
}
