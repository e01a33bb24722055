//! Removes unfinished files when the program is interrupted.

use std::fmt::Display;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use xebec::device::NewFile;

use crate::output::{Level, print_message};

/// Exit code after a signal, as in a shell: this plus the signal number.
pub const SIGNALLED: i32 = 128;

/// Installs a handler of terminating signals, which removes the unfinished file `what` and prints a message. For
/// commands that only create a new file.
pub fn abandon(what: impl Display) {
    // Without such a thread, a signal terminates the program at once and may leave a hidden file.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    let message = format!("{what}: interrupted, not created");
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            NewFile::remove_unfinished();
            print_message(Level::Error, "", message);
            crate::memory::exit(SIGNALLED + signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(wait);
}
