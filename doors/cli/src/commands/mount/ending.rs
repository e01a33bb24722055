//! Signals: the first unmounts; the second, while something is in use, makes stable what there is and leaves.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use xebec::Volume;

use crate::output::{Messages, exit_code};

/// Signals are waited for as long as this lives.
pub struct Ending(Signals);

impl Ending {
    /// From now on they do not end the process.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot wait for signals")?))
    }

    /// Ends [`wait`](Self::wait).
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Waits for signals, and does what they ask.
    pub fn wait(mut self, directory: &Path, volume: &Volume, messages: &Messages) {
        let mut asked = false;
        for _ in self.0.forever() {
            if asked {
                // What was written is in the log or at home; the next opening puts it in order.
                let code = if volume.sync().is_ok() { exit_code::OK } else { exit_code::FAILED };
                std::process::exit(code.into());
            }
            asked = true;
            give_up(directory, messages);
        }
    }
}

/// Has the kernel write what it keeps, and unmounts: now, or when nobody uses the mount any more.
fn give_up(directory: &Path, messages: &Messages) {
    let open = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    if let Ok(root) = open {
        // What fails is told to who wrote it.
        let _ = rustix::fs::syncfs(&root);
    }
    if fuse::mount::unmount(directory, false).is_ok() {
        return;
    }
    let name: PathBuf = directory.into();
    messages.warn(format_args!(
        "{} is in use: unmounted for all who come now; a second signal ends it for those, too",
        name.display()
    ));
    if let Err(error) = fuse::mount::unmount(directory, true) {
        messages.warn(format_args!("{} cannot be unmounted: {error}", name.display()));
    }
}
