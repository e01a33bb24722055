//! The four mounts that are compared.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::{Scale, nothing};
use crate::bench_volume;
use crate::measure::PURGE_DELAY_VARIABLE;

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
    /// Mount point.
    pub directory: PathBuf,
    xebec: PathBuf,
    image: PathBuf,
    server: Option<Child>,
    mounted: bool,
}

impl TestMount {
    /// Creates an image and mounts it.
    pub fn new(scale: &Scale, kind: MountKind) -> anyhow::Result<Self> {
        let directory = scale.folder.join("mnt");
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let image = scale.folder.join("mounted.img");
        // The image of the last run, if it was interrupted.
        let _ = std::fs::remove_file(&image);
        let xebec = scale.xebec.clone();
        let mut mounted = Self { kind, directory, xebec, image, server: None, mounted: false };
        mounted.mount(scale.image_bytes)?;
        mounted.mounted = true;
        Ok(mounted)
    }

    fn mount(&mut self, bytes: u64) -> anyhow::Result<()> {
        let (image, directory) = (&self.image, &self.directory);
        match self.kind {
            MountKind::Xebec => {
                bench_volume::make(image, &bench_volume::layout(bytes, LOG_BYTES))?;
                let mut mount = Command::new(&self.xebec);
                run(mount.arg("mount").args([image, directory]).env_remove(PURGE_DELAY_VARIABLE))?;
            }
            MountKind::Kernel => {
                bench_volume::make(image, &bench_volume::layout(bytes, LOG_BYTES))?;
                run(Command::new("mount").args(["-t", "xfs", "-o", "loop,nouuid"]).args([image, directory]))?;
            }
            MountKind::Fuse2fs => {
                std::fs::File::create(image)?.set_len(bytes)?;
                run(Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(image))?;
                let server =
                    start_server(Command::new("fuse2fs").arg("-f").args([image, directory]), directory)
                        .context("fuse2fs (apt install fuse2fs)")?;
                self.server = Some(server);
            }
            MountKind::Nothing => {
                self.server = Some(start_server(&mut nothing::command(directory)?, directory)?)
            }
        }
        Ok(())
    }

    /// Unmounts it; the image is complete then.
    pub fn unmount(mut self) -> anyhow::Result<()> {
        self.mounted = false;
        match self.kind {
            MountKind::Xebec => run(Command::new(&self.xebec).arg("umount").arg(&self.directory))?,
            _ => run(Command::new("umount").arg(&self.directory))?,
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
        if self.kind.stores_files() {
            std::fs::remove_file(&self.image)?;
        }
        Ok(())
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if self.mounted {
            // After an error; if this fails, the mount ends with our namespace.
            let _ = Command::new("umount").arg("--lazy").arg(&self.directory).status();
        }
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Starts a server and waits until it is mounted.
fn start_server(command: &mut Command, directory: &Path) -> anyhow::Result<Child> {
    use std::os::unix::fs::MetadataExt;
    let device = || Ok::<_, std::io::Error>(std::fs::metadata(directory)?.dev());
    let before = device()?;
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
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
