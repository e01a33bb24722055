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
#[command(after_help = "Returns when all data is written and the image is unlocked.\n\n\
    Examples:\n  \
    xebec umount mnt\n  \
    xebec umount --lazy mnt       # detaches now; ends with the last use\n\n\
    Exit codes: 0 success; 1 failure; 2 usage error.")]
pub struct Arguments {
    /// Mount point.
    pub directory: PathBuf,
    /// Lazy unmount: detach the mount now, and end it when it is no longer busy.
    #[arg(short, long)]
    pub lazy: bool,
}

/// Time limit for the server to write dirty data.
const TIMEOUT: Timespec = Timespec { tv_sec: 600, tv_nsec: 0 };

/// Runs `umount`.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let directory = &resolve_mount_point(&arguments.directory);
    let server = server(directory);
    fuse::mount::unmount(directory, arguments.lazy).map_err(|error| {
        match error.raw_os_error().map(xebec::errno::Errno::new) {
            Some(xebec::errno::EBUSY) => {
                anyhow!("target is busy (fuser -vm shows users; --lazy detaches it)")
            }
            Some(xebec::errno::EINVAL) => anyhow!("not mounted"),
            _ => anyhow!("{error}"),
        }
    })?;
    // After the kernel's unmount, the server still writes data and holds the lock.
    if let Some(server) = server.filter(|_| !arguments.lazy) {
        wait_for(&server)?;
    }
    Ok(exit_code::OK)
}

/// Resolves symbolic links of a path without accessing the mount, whose server may be dead.
fn resolve_mount_point(directory: &Path) -> PathBuf {
    const LINKS_MAX: usize = 40;
    // With a trailing slash, a link would be followed.
    let without_slash = |path: &Path| path.components().collect::<PathBuf>();
    let mut path = without_slash(directory);
    for _ in 0..LINKS_MAX {
        let Ok(link) = std::fs::read_link(&path) else { break };
        path = without_slash(&path.parent().unwrap_or(Path::new("")).join(link));
    }
    let parent =
        path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    match (parent.and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.canonicalize().unwrap_or(path),
    }
}

fn wait_for(server: &OwnedFd) -> anyhow::Result<()> {
    loop {
        match rustix::event::poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&TIMEOUT)) {
            Ok(0) => bail!(
                "unmounted, but data is not completely written after {} minutes: the image stays locked until then",
                TIMEOUT.tv_sec / 60
            ),
            Err(rustix::io::Errno::INTR) => {}
            polled => return polled.map(drop).map_err(Into::into),
        }
    }
}

/// A descriptor of the server's process, to wait for.
fn server(directory: &Path) -> Option<OwnedFd> {
    let process = status::process(directory).ok()?;
    rustix::process::pidfd_open(process, PidfdFlags::empty()).ok()
}
