//! The four mounts that are compared.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::{Scale, nothing};
use crate::bench_volume::{self, Mount};
use crate::child;

/// One of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// `xebec mount`.
    Xebec,
    /// ext4 by `fuse2fs`.
    Fuse2fs,
    /// The FUSE server that does nothing.
    Nothing,
    /// XFS by the kernel, on a loop device.
    Kernel,
}

/// All, in the order in which they run.
pub const ALL: [MountKind; 4] = [MountKind::Xebec, MountKind::Fuse2fs, MountKind::Nothing, MountKind::Kernel];

const LOG_BYTES: u64 = 64 << 20;

/// Timeout for mounting, and for the end of a server.
const TIMEOUT: Duration = Duration::from_secs(60);

impl MountKind {
    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xebec => "xebec mount",
            Self::Fuse2fs => "fuse2fs (ext4)",
            Self::Nothing => "a server that does nothing",
            Self::Kernel => "the kernel's XFS on a loop mount",
        }
    }

    /// Whether it stores files.
    pub fn stores_files(self) -> bool {
        self != Self::Nothing
    }
}

/// A mounted fresh image, unmounted when dropped. A loop mount ends with our mount namespace at the latest.
pub struct TestMount {
    kind: MountKind,
    image: PathBuf,
    /// Dropped before its server is killed.
    mount: Option<Mount>,
    server: Option<Child>,
}

impl TestMount {
    /// Creates an image and mounts it.
    pub fn new(scale: &Scale, kind: MountKind) -> anyhow::Result<Self> {
        let image = scale.folder.join("mounted.img");
        match kind {
            MountKind::Xebec | MountKind::Kernel => {
                bench_volume::make(&image, &bench_volume::layout(scale.image_bytes, LOG_BYTES))?;
            }
            MountKind::Fuse2fs => {
                std::fs::File::create(&image)?.set_len(scale.image_bytes)?;
                make_ext4(&image)?;
            }
            MountKind::Nothing => {}
        }
        Self::mount(scale, kind, image)
    }

    fn mount(scale: &Scale, kind: MountKind, image: PathBuf) -> anyhow::Result<Self> {
        let mut server = None;
        let mount = match kind {
            MountKind::Xebec => Mount::fuse(&scale.xebec, &image)?,
            MountKind::Kernel => Mount::new(&image)?,
            MountKind::Fuse2fs => Mount::with(|directory| {
                let mut fuse2fs = child::command("fuse2fs");
                let started = start_server(fuse2fs.arg("-f").arg(&image).arg(directory), directory);
                server = Some(started.context("fuse2fs")?);
                Ok(())
            })?,
            MountKind::Nothing => Mount::with(|directory| {
                server = Some(start_server(&mut nothing::command(directory)?, directory)?);
                Ok(())
            })?,
        };
        Ok(Self { kind, image, mount: Some(mount), server })
    }

    /// Unmounts it, and mounts its image again: nothing of it is in memory then but pages of the image.
    pub fn again(mut self, scale: &Scale) -> anyhow::Result<Self> {
        self.end()?;
        Self::mount(scale, self.kind, self.image.clone())
    }

    /// The mount point.
    pub fn directory(&self) -> &Path {
        self.mount.as_ref().map_or(Path::new(""), Mount::folder)
    }

    /// Unmounts it, and removes the image.
    pub fn unmount(mut self) -> anyhow::Result<()> {
        self.end()?;
        if self.kind.stores_files() {
            std::fs::remove_file(&self.image)?;
        }
        Ok(())
    }

    /// Unmounts it; the image is complete then.
    fn end(&mut self) -> anyhow::Result<()> {
        if let Some(mount) = self.mount.take() {
            mount.unmount()?;
        }
        if let Some(server) = &mut self.server {
            let began = Instant::now();
            while server.try_wait()?.is_none() {
                if began.elapsed() > TIMEOUT {
                    bail!("{} does not terminate", self.kind.name());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        drop(self.mount.take());
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn make_ext4(image: &Path) -> anyhow::Result<()> {
    let output = child::command("mke2fs").args(["-q", "-t", "ext4"]).arg(image).output().context("mke2fs")?;
    if !output.status.success() {
        bail!("mke2fs: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Starts a server and waits until it is mounted.
fn start_server(command: &mut Command, directory: &Path) -> anyhow::Result<Child> {
    use std::os::unix::fs::MetadataExt;
    let device = || Ok::<_, std::io::Error>(std::fs::metadata(directory)?.dev());
    let before = device()?;
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let began = Instant::now();
    while device()? == before {
        let ended = server.try_wait()?;
        if ended.is_some() || began.elapsed() > TIMEOUT {
            let _ = server.kill();
            bail!("the server does not mount: {ended:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}
