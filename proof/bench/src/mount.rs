//! The kernel's mount of an image, read-only, for as long as the value lives.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// A mounted image. It is unmounted when dropped, and with our mount namespace in any case.
pub struct Mount {
    folder: PathBuf,
}

impl Mount {
    /// Mounts through a loop device, read-only. The image must be a healthy one: the kernel is not to be fed damage.
    pub fn new(image: &Path) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("xebec-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mount = Self { folder };
        let status = Command::new("mount")
            .args(["-t", "xfs", "-o", "loop,ro,nouuid,noatime"])
            .args([image, &mount.folder])
            .status()
            .context("mount")?;
        if !status.success() {
            bail!("the kernel does not mount {}: {status}", image.display());
        }
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Fails where mounting failed; the namespace takes care of the rest.
        let _ = Command::new("umount").arg("--quiet").arg(&self.folder).status();
        let _ = std::fs::remove_dir(&self.folder);
    }
}
