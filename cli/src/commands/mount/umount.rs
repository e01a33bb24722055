//! `xebec umount`.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;

use super::status;
use crate::output::exit_code;

/// Arguments of `umount`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Returns when everything is in the image and the image is free for others.\n\n\
    Examples:\n  \
    xebec umount mnt\n  \
    xebec umount --lazy mnt       # ends when nobody uses it any more\n\n\
    Exit codes: 0 done; 1 it failed; 2 wrong usage.")]
pub struct Arguments {
    /// The directory on which the volume is mounted.
    pub directory: PathBuf,
    /// Even if it is in use: nobody new gets in, and it ends with the last use.
    #[arg(short, long)]
    pub lazy: bool,
}

/// How long the process that serves the mount may take to write what is left.
const PATIENCE: Timespec = Timespec { tv_sec: 600, tv_nsec: 0 };

/// Runs `umount`.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let directory = &place(&arguments.directory);
    let server = server(directory);
    fuse::mount::unmount(directory, arguments.lazy).map_err(|error| match error.raw_os_error() {
        Some(base::errno::EBUSY) => {
            anyhow!("it is in use (fuser -vm shows by whom; --lazy does not wait for them)")
        }
        Some(base::errno::EINVAL) => anyhow!("nothing is mounted here"),
        _ => anyhow!("{error}"),
    })?;
    // Once the kernel has let the volume go, its server ends it, and has the image locked until then.
    if let Some(server) = server.filter(|_| !arguments.lazy) {
        wait_for(&server)?;
    }
    Ok(exit_code::OK)
}

/// The directory that a path means, without symbolic links. Nobody looks at what is mounted there, which may have no
/// server any more.
fn place(directory: &Path) -> PathBuf {
    const LINKS_MAX: usize = 40;
    // With a slash at its end, a link would be followed.
    let bare = |path: &Path| path.components().collect::<PathBuf>();
    let mut path = bare(directory);
    for _ in 0..LINKS_MAX {
        let Ok(link) = std::fs::read_link(&path) else { break };
        path = bare(&path.parent().unwrap_or(Path::new("")).join(link));
    }
    let above = path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    match (above.and_then(|above| above.canonicalize().ok()), path.file_name()) {
        (Some(above), Some(name)) => above.join(name),
        _ => path.canonicalize().unwrap_or(path),
    }
}

fn wait_for(server: &OwnedFd) -> anyhow::Result<()> {
    loop {
        match rustix::event::poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&PATIENCE)) {
            Ok(0) => bail!(
                "it is unmounted, but what is left to be written is not in the image after {} minutes: the image stays \
                 locked until it is",
                PATIENCE.tv_sec / 60
            ),
            Err(rustix::io::Errno::INTR) => {}
            ended => return ended.map(drop).map_err(Into::into),
        }
    }
}

/// The process that serves a mount, to wait for.
fn server(directory: &Path) -> Option<OwnedFd> {
    let process = status::process(directory).ok()?;
    rustix::process::pidfd_open(process, PidfdFlags::empty()).ok()
}
