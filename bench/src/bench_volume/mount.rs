//! Directories of mounted file systems.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::child;
use crate::cleanup::{self, Registered};
use crate::measure::PURGE_DELAY_VARIABLE;

/// How the use of a directory ends.
#[derive(Debug)]
enum End {
    /// `umount`.
    Unmount,
    /// `xebec umount`, by this program.
    XebecUmount(PathBuf),
    /// The directory is removed, with its contents.
    Remove,
}

/// A directory of a mounted file system. Dropping it ends its use.
#[derive(Debug)]
pub struct Mount {
    folder: PathBuf,
    end: Option<End>,
    _registered: Registered,
}

/// Writes to the device of a mount since it exists.
#[derive(Clone, Copy, Debug)]
pub struct DeviceWrites {
    /// Write requests.
    pub count: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl Mount {
    /// A read-write loop mount by the kernel.
    pub fn new(image: &Path) -> anyhow::Result<Self> {
        let image = image.to_str().context("a path in UTF-8")?;
        Self::by(child::command("mount").args(["-t", "xfs", "-o", "loop,nouuid", image]), End::Unmount)
    }

    /// A read-only loop mount by the kernel. The image must not be damaged: the kernel would have to parse it.
    pub fn read_only(image: &Path) -> anyhow::Result<Self> {
        let image = image.to_str().context("a path in UTF-8")?;
        Self::by(
            child::command("mount").args(["-t", "xfs", "-o", "loop,ro,nouuid,noatime", image]),
            End::Unmount,
        )
    }

    /// A tmpfs.
    pub fn tmpfs() -> anyhow::Result<Self> {
        Self::by(child::command("mount").args(["-t", "tmpfs", "tmpfs"]), End::Unmount)
    }

    /// A mount by a program `xebec`.
    pub fn fuse(xebec: &Path, image: &Path) -> anyhow::Result<Self> {
        let mut mount = child::command(xebec);
        // It returns memory to the system as it does for users.
        mount.env_remove(PURGE_DELAY_VARIABLE).arg("mount").arg(image);
        Self::by(&mut mount, End::XebecUmount(xebec.into()))
    }

    /// A new directory within another one.
    pub fn directory(parent: &Path) -> anyhow::Result<Self> {
        let made = cleanup::new_directory(parent).with_context(|| parent.display().to_string());
        let (folder, registered) = made?;
        Ok(Self { folder, end: Some(End::Remove), _registered: registered })
    }

    /// A mount on a new directory, which `mount` makes, and `umount` ends.
    pub fn with(mount: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        Self::ending(End::Unmount, mount)
    }

    fn by(mount: &mut Command, end: End) -> anyhow::Result<Self> {
        Self::ending(end, |folder| {
            let output = mount.arg(folder).output().context("mount")?;
            if !output.status.success() {
                bail!("it cannot be mounted: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            Ok(())
        })
    }

    fn ending(end: End, mount: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        let made = cleanup::new_mount_point(&parent).with_context(|| parent.display().to_string());
        let (folder, registered) = made?;
        // Made before `mount` runs: if that fails after it has mounted, dropping this unmounts.
        let mounted = Self { folder, end: Some(end), _registered: registered };
        mount(&mounted.folder)?;
        Ok(mounted)
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was written to its block device, as the kernel counts it.
    ///
    /// # Errors
    /// It has no block device.
    pub fn device_writes(&self) -> anyhow::Result<DeviceWrites> {
        use std::os::unix::fs::MetadataExt;
        /// Bytes of a sector in the kernel's statistics, whatever the device has.
        const SECTOR: u64 = 512;
        let device = std::fs::metadata(&self.folder)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let path = format!("/sys/dev/block/{major}:{minor}/stat");
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let numbers: Vec<u64> = text.split_whitespace().map_while(|number| number.parse().ok()).collect();
        // Reads have the first four numbers: requests, merged ones, sectors, milliseconds.
        let [_, _, _, _, count, _, sectors, ..] = numbers[..] else { bail!("{path}: {text:?}") };
        Ok(DeviceWrites { count, bytes: sectors * SECTOR })
    }

    /// Ends its use, and waits.
    pub fn unmount(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let mut command = match &self.end {
            None => return Ok(()),
            Some(End::Remove) => {
                std::fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
                self.end = None;
                return Ok(());
            }
            Some(End::Unmount) => child::command("umount"),
            Some(End::XebecUmount(xebec)) => {
                let mut umount = child::command(xebec);
                umount.arg("umount");
                umount
            }
        };
        let output = command.arg(&self.folder).output().context("umount")?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            bail!("{} cannot be unmounted: {}", self.folder.display(), message.trim());
        }
        self.end = None;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A mount that is in use is detached, and ends with its last user.
        if self.end().is_err() {
            let _ = fuse::mount::unmount(&self.folder, true);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was mounted stayed if the command failed afterwards.
    #[test]
    fn a_failed_mount_leaves_nothing() {
        let Some(()) = needs::met(needs::mounting()) else { return };
        let mut place = PathBuf::new();
        let failed = Mount::with(|folder| {
            place = folder.into();
            let mounted = child::command("mount").args(["-t", "tmpfs", "tmpfs"]).arg(folder).status();
            anyhow::ensure!(mounted.context("mount")?.success(), "a tmpfs");
            bail!("it fails after that")
        });
        assert!(failed.is_err());
        assert!(!place.exists(), "neither the mount nor its directory is left");
    }
}
