//! What becomes of a file that is being made when the user interrupts the program.

use std::fmt::Display;

use block::NewFile;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::output::{Level, say};

/// What a shell reports of a program that a signal ended: this and its number.
const SIGNALLED: i32 = 128;

/// From now on a signal that asks the program to end takes away first what there is of the unfinished file `what`, and
/// says so. For commands that make a new file and change nothing else.
pub fn abandon(what: impl Display) {
    // Where the system gives no such thread, a signal ends the program at once: only a hidden file may stay.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    let said = format!("{what}: interrupted: it was not made, and nothing is left of it");
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            NewFile::abandon_all();
            say(Level::Error, "", said);
            std::process::exit(SIGNALLED + signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(wait);
}
