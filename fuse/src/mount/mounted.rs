//! A mount of ours, among others that may be made on the same directory later.

use std::io;
use std::path::{Path, PathBuf};

use block::{DeviceNumber, mounts};

use super::unmount;

/// What this process has mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    directory: PathBuf,
    /// The device number; `None` where there is no table of mounts.
    device: Option<DeviceNumber>,
}

impl Mounted {
    /// What was mounted on a directory last. The path is one without symbolic links.
    pub fn last_on(directory: &Path) -> Self {
        Self { directory: directory.into(), device: device_on(directory) }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The device number of the mount; `None` where there is no table of mounts.
    pub fn device(&self) -> Option<DeviceNumber> {
        self.device
    }

    /// Whether something else was mounted over it.
    pub fn is_covered(&self) -> bool {
        let last = device_on(&self.directory);
        last.is_some() && self.device.is_some() && last != self.device
    }

    /// Unmounts it as [`unmount()`] does, unless another mount covers it.
    ///
    /// # Errors
    /// The errors of [`unmount()`]; `EBUSY` where another mount covers it.
    pub fn unmount(&self, lazily: bool) -> io::Result<()> {
        if self.is_covered() {
            return Err(io::Error::from_raw_os_error(base::errno::EBUSY.get()));
        }
        unmount(&self.directory, lazily)
    }
}

fn device_on(directory: &Path) -> Option<DeviceNumber> {
    mounts().into_iter().rev().find(|mount| mount.directory == directory).map(|mount| mount.device)
}
