//! Read-only mounts by the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// A mounted image, unmounted when dropped. If that fails, it ends with the mount namespace of this process.
pub struct Mount {
    folder: PathBuf,
}

impl Mount {
    /// Mounts an image through a loop device. The image must not be damaged: the kernel would have to parse it.
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

    /// The mount point.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Fails if mounting failed; other mounts end with the namespace.
        let _ = Command::new("umount").arg("--quiet").arg(&self.folder).status();
        let _ = std::fs::remove_dir(&self.folder);
    }
}
