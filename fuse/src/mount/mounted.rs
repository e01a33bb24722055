//! A mount of this process, which later mounts on the same directory may cover.

use std::io;
use std::path::{Path, PathBuf};

use block::{DeviceNumber, mounts};

use super::unmount;

/// Readahead in KiB. For a mapped file the kernel reads as much around each page fault, so that a larger value would
/// slow down random access.
const READ_AHEAD_KIB: u32 = 512;

/// A mount of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    directory: PathBuf,
    /// Device number; `None` if the system has no mount table.
    device: Option<DeviceNumber>,
}

impl Mounted {
    /// The last mount on a directory. The path must not contain symbolic links.
    pub fn last_on(directory: &Path) -> Self {
        Self { directory: directory.into(), device: device_on(directory) }
    }

    /// Mount point.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Device number; `None` if the system has no mount table.
    pub fn device(&self) -> Option<DeviceNumber> {
        self.device
    }

    /// Whether another mount covers it.
    pub fn is_covered(&self) -> bool {
        let last = device_on(&self.directory);
        last.is_some() && self.device.is_some() && last != self.device
    }

    /// Unmounts it like [`unmount()`], unless another mount covers it.
    ///
    /// # Errors
    /// The errors of [`unmount()`]; `EBUSY` if another mount covers it.
    pub fn unmount(&self, lazily: bool) -> io::Result<()> {
        if self.is_covered() {
            return Err(io::Error::from_raw_os_error(base::errno::EBUSY.get()));
        }
        unmount(&self.directory, lazily)
    }

    /// Increases the readahead of the kernel, which is 128 KiB by default, so that sequential reads need fewer
    /// requests.
    ///
    /// # Errors
    /// `EACCES` unless the caller is root; `ENOENT` if the mount is gone or sysfs has no entry. The mount is usable
    /// nevertheless.
    pub fn set_read_ahead(&self) -> io::Result<()> {
        let device = self.device.ok_or(io::ErrorKind::NotFound)?;
        std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB.to_string())
    }
}

fn device_on(directory: &Path) -> Option<DeviceNumber> {
    mounts().into_iter().rev().find(|mount| mount.directory == directory).map(|mount| mount.device)
}
