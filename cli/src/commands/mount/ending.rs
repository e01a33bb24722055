//! Signals: the first unmounts; the second, while something is in use, makes stable what there is and leaves.

use anyhow::Context as _;
use fuse::mount::Mounted;
use rustix::fs::{Mode, OFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use xebec::Volume;

use crate::output::{Messages, exit_code};

/// Signals are waited for as long as this lives.
pub struct Ending(Signals);

impl Ending {
    /// From now on they do not end the process. Whoever started it may have had them blocked.
    pub fn new() -> anyhow::Result<Self> {
        let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot wait for signals")?;
        // One that came while it was blocked is told now.
        base::process::unblock_signals().context("cannot unblock signals")?;
        Ok(Self(signals))
    }

    /// Ends [`wait`](Self::wait).
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Waits for signals, and does what they ask.
    pub fn wait(mut self, mounted: &Mounted, volume: &Volume, messages: &Messages) {
        let mut asked = None;
        for _ in self.0.forever() {
            let is_covered = mounted.is_covered();
            if asked == Some(is_covered) {
                // What was written is in the log or at home; the next opening puts it in order.
                let code = if volume.sync().is_ok() { exit_code::OK } else { exit_code::FAILED };
                std::process::exit(code.into());
            }
            asked = Some(is_covered);
            if is_covered {
                let name = mounted.directory().display();
                messages.warn(format_args!(
                    "something else is mounted over {name}: unmount that first; a second signal ends this one as it is"
                ));
                // What fails is told by the next signal, or to who wrote it.
                let _ = volume.sync();
            } else {
                give_up(mounted, messages);
            }
        }
    }
}

/// Has the kernel write what it keeps, and unmounts: now, or when nobody uses the mount any more.
fn give_up(mounted: &Mounted, messages: &Messages) {
    let name = mounted.directory().display();
    let open = rustix::fs::open(mounted.directory(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    if let Ok(root) = open {
        // What fails is told to who wrote it.
        let _ = rustix::fs::syncfs(&root);
    }
    if mounted.unmount(false).is_ok() {
        return;
    }
    messages.warn(format_args!(
        "{name} is in use: unmounted for all who come now; a second signal ends it for those, too"
    ));
    if let Err(error) = mounted.unmount(true) {
        messages.warn(format_args!("{name} cannot be unmounted: {error}"));
    }
}
