//! `xebec umount`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use rustix::fs::FlockOperation;

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
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs `umount`.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let directory = &arguments.directory;
    let source = source(directory);
    fuse::mount::unmount(directory, arguments.lazy).map_err(|error| match error.raw_os_error() {
        Some(base::errno::EBUSY) => {
            anyhow!("it is in use (fuser -vm shows by whom; --lazy does not wait for them)")
        }
        Some(base::errno::EINVAL) => anyhow!("nothing is mounted here"),
        _ => anyhow!("{error}"),
    })?;
    if let Some(image) = source.filter(|_| !arguments.lazy) {
        wait_until_free(&image);
    }
    Ok(exit_code::OK)
}

/// What is mounted on a directory, if that is a file.
fn source(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let found = mounts.lines().rev().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let place = head.split(' ').nth(4)?;
        (Path::new(&unescaped(place)) == directory).then(|| tail.split(' ').nth(1))?
    })?;
    Some(PathBuf::from(unescaped(found))).filter(|path| path.is_file())
}

/// Spaces and their like are written as three octal digits behind a backslash (`proc_pid_mountinfo(5)`).
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

/// The process that serves it unmounts the volume once the kernel has let it go, and has it locked until then.
fn wait_until_free(image: &Path) {
    let Ok(file) = std::fs::File::open(image) else { return };
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
            _ => return,
        }
    }
}
