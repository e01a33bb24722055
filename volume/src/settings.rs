//! Inode flags, extent size hints and project ID of a file (`FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`).

pub use inode::settings::{HINTS, Settings, xflags};

use crate::contents::in_memory;
use crate::{File, FileId, Result, Volume};

impl Volume {
    /// Returns the settings of a file.
    ///
    /// # Errors
    /// `ESTALE` if the file was removed; damage.
    pub fn settings(&self, file: FileId) -> Result<Settings> {
        Ok(Settings::of(&self.inode(file)?.read(), &self.geometry))
    }

    /// Changes the settings of a file, also of an immutable one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
    /// # mkfs::format(&*device, &mkfs::Options::default())?;
    /// use xebec_volume::{NewFile, Options, Volume};
    ///
    /// let volume = Volume::open(device, Options::default())?;
    /// let file = volume.create(volume.root(), b"ledger", &NewFile::regular())?;
    /// let mut settings = volume.settings(file)?;
    /// settings.xflags |= u32::from(format::inode::flags::APPEND);
    /// settings.project = 42;
    /// volume.set_settings(file, &settings)?;
    /// assert!(volume.unlink(volume.root(), b"ledger").is_err());
    /// # volume.unmount()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `EINVAL`, with nothing changed: a flag that this file type does not have, an invalid extent size hint, or a hint
    /// for a file that already has extents.
    pub fn set_settings(&self, file: FileId, settings: &Settings) -> Result<()> {
        let inode = self.inode(file)?;
        let operation = self.begin(self.reservations.inode)?;
        let mut state = inode.lock();
        settings.set(self.inode_cache.shared(), &mut state)?;
        operation.commit(&mut [&mut state])?;
        drop(state);
        match in_memory(&inode) {
            Some(contents) => Ok(contents.alloc_unit_changed()?),
            None => Ok(()),
        }
    }
}

impl File<'_> {
    /// Returns the settings of the file.
    ///
    /// # Errors
    /// As [`Volume::settings`].
    pub fn settings(&self) -> Result<Settings> {
        self.volume().settings(self.id())
    }

    /// Changes the settings of the file.
    ///
    /// # Errors
    /// As [`Volume::set_settings`]; `EPERM` if the file is open for a user other than root.
    pub fn set_settings(&self, settings: &Settings) -> Result<()> {
        self.caller().expect_privileged()?;
        self.volume().set_settings(self.id(), settings)
    }
}
