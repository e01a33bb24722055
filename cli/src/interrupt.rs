//! What happens to unfinished files and volumes when the program is interrupted.

use std::fmt::Display;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use xebec::Cancel;
use xebec::device::NewFile;

use crate::output::{Coded, Level, print_message};

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

/// The signal that cancelled the command; 0 if there was none.
static CANCELLED: AtomicI32 = AtomicI32::new(0);

/// Cancels the command on the first terminating signal, so that it can clean up, and ends the program on the
/// second. `message` says what happens.
pub fn cancel(message: impl Display, cancel: Cancel) {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    let message = message.to_string();
    let wait = move || {
        let mut signals = signals.forever();
        let Some(first) = signals.next() else { return };
        CANCELLED.store(first, SeqCst);
        cancel.cancel();
        print_message(Level::Note, "", message);
        if let Some(second) = signals.next() {
            crate::memory::exit(SIGNALLED + second);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(wait);
}

/// Gives the error of a cancelled command the exit code of its signal.
pub fn with_exit_code(error: anyhow::Error) -> anyhow::Error {
    match CANCELLED.load(SeqCst) {
        0 => error,
        signal => Coded { code: (SIGNALLED + signal) as u8, error }.into(),
    }
}
