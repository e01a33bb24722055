//! The four that are mounted beside each other.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::{Scale, nothing};
use crate::measure::MEMORY_KEPT;
use crate::side;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `xebec mount`.
    Xebec,
    /// ext4 by `fuse2fs`.
    Fuse2fs,
    /// Nothing, by the session of `xebec mount`.
    Nothing,
    /// XFS by the kernel, on a loop device.
    Kernel,
}

/// All, in the order of their turns.
pub const ALL: [Kind; 4] = [Kind::Xebec, Kind::Fuse2fs, Kind::Nothing, Kind::Kernel];

const LOG_BYTES: u64 = 64 << 20;

/// How long a server may take until it is mounted, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(60);

impl Kind {
    /// In words.
    pub fn is(self) -> &'static str {
        match self {
            Self::Xebec => "xebec mount",
            Self::Fuse2fs => "fuse2fs (ext4)",
            Self::Nothing => "a server that does nothing",
            Self::Kernel => "the kernel's XFS on a loop mount",
        }
    }

    /// Whether programs find there what they left there.
    pub fn keeps(self) -> bool {
        self != Self::Nothing
    }
}

/// A fresh one, mounted. Taken away when dropped; a loop device, with our mount namespace in any case.
pub struct Place {
    kind: Kind,
    /// Where.
    pub directory: PathBuf,
    xebec: PathBuf,
    image: PathBuf,
    server: Option<Child>,
    mounted: bool,
}

impl Place {
    /// Makes an image and mounts it.
    pub fn new(scale: &Scale, kind: Kind) -> anyhow::Result<Self> {
        let directory = scale.folder.join("mnt");
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let image = scale.folder.join("mounted.img");
        // The image of the last turn, if it was interrupted.
        let _ = std::fs::remove_file(&image);
        let xebec = scale.xebec.clone();
        let mut place = Self { kind, directory, xebec, image, server: None, mounted: false };
        place.mount(scale.image_bytes)?;
        place.mounted = true;
        Ok(place)
    }

    fn mount(&mut self, bytes: u64) -> anyhow::Result<()> {
        let (image, directory) = (&self.image, &self.directory);
        match self.kind {
            Kind::Xebec => {
                side::make(image, &side::layout(bytes, LOG_BYTES))?;
                let mut mount = Command::new(&self.xebec);
                run(mount.arg("mount").args([image, directory]).env_remove(MEMORY_KEPT))?;
            }
            Kind::Kernel => {
                side::make(image, &side::layout(bytes, LOG_BYTES))?;
                run(Command::new("mount").args(["-t", "xfs", "-o", "loop,nouuid"]).args([image, directory]))?;
            }
            Kind::Fuse2fs => {
                std::fs::File::create(image)?.set_len(bytes)?;
                run(Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(image))?;
                let server = started(Command::new("fuse2fs").arg("-f").args([image, directory]), directory)
                    .context("fuse2fs (apt install fuse2fs)")?;
                self.server = Some(server);
            }
            Kind::Nothing => self.server = Some(started(&mut nothing::command(directory)?, directory)?),
        }
        Ok(())
    }

    /// Ends it; everything is in its image then.
    pub fn unmount(mut self) -> anyhow::Result<()> {
        self.mounted = false;
        match self.kind {
            Kind::Xebec => run(Command::new(&self.xebec).arg("umount").arg(&self.directory))?,
            _ => run(Command::new("umount").arg(&self.directory))?,
        }
        if let Some(server) = &mut self.server {
            let began = Instant::now();
            while server.try_wait()?.is_none() {
                if began.elapsed() > PATIENCE {
                    bail!("{} does not end", self.kind.is());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if self.kind.keeps() {
            std::fs::remove_file(&self.image)?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            // After an error: what cannot be taken away goes with our namespace.
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

/// Starts a server and waits until something is mounted.
fn started(command: &mut Command, directory: &Path) -> anyhow::Result<Child> {
    use std::os::unix::fs::MetadataExt;
    let device = || Ok::<_, std::io::Error>(std::fs::metadata(directory)?.dev());
    let before = device()?;
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let began = Instant::now();
    while device()? == before {
        let ended = server.try_wait()?;
        if ended.is_some() || began.elapsed() > PATIENCE {
            let _ = server.kill();
            bail!("it does not mount: {ended:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}
