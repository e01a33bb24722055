//! Signals: the first unmounts; the second, while the mount is in use, syncs the volume and exits.

use anyhow::Context as _;
use fuse::mount::Mounted;
use rustix::fs::{Mode, OFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use xebec::Volume;

use crate::output::{Messages, exit_code};

/// Handler of SIGHUP, SIGINT and SIGTERM.
pub struct SignalHandler(Signals);

impl SignalHandler {
    /// Installs the handler and unblocks the signals, which the parent may have blocked.
    pub fn new() -> anyhow::Result<Self> {
        let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot wait for signals")?;
        // Pending signals are delivered now.
        base::process::unblock_signals().context("cannot unblock signals")?;
        Ok(Self(signals))
    }

    /// Handle to end [`wait`](Self::wait).
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Waits for signals and handles them.
    pub fn wait(mut self, mounted: &Mounted, volume: &Volume, messages: &Messages) {
        let mut handled = None;
        for _ in self.0.forever() {
            let is_covered = mounted.is_covered();
            if handled == Some(is_covered) {
                // All changes are on stable storage; the next mount replays the log.
                let code = if volume.sync().is_ok() { exit_code::OK } else { exit_code::FAILED };
                crate::memory::exit(code.into());
            }
            handled = Some(is_covered);
            if is_covered {
                let name = mounted.directory().display();
                messages.warn(format_args!(
                    "another file system is mounted over {name}: unmount it first; a second signal exits without \
                    unmounting"
                ));
                // Errors are reported at the next signal, or by fsync.
                let _ = volume.sync();
            } else {
                unmount(mounted, messages);
            }
        }
    }
}

/// Writes back the kernel's cache and unmounts, lazily if the mount is in use.
fn unmount(mounted: &Mounted, messages: &Messages) {
    let name = mounted.directory().display();
    let open = rustix::fs::open(mounted.directory(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    if let Ok(root) = open {
        // Errors are reported by fsync.
        let _ = rustix::fs::syncfs(&root);
    }
    if mounted.unmount(false).is_ok() {
        return;
    }
    messages.warn(format_args!("{name} is in use: unmounted lazily; a second signal exits"));
    if let Err(error) = mounted.unmount(true) {
        messages.warn(format_args!("cannot unmount {name}: {error}"));
    }
}
