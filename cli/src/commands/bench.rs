//! `xebec bench`: measures Xebec beside other file systems.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bench::{Arguments, Report, Settings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Global;
use crate::interrupt::SIGNALLED;
use crate::json;
use crate::output::{Level, exit_code, print_message};

/// Runs `bench`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let interrupted = Arc::new(AtomicBool::new(false));
    wait_for_signals(interrupted.clone())?;
    let threads = global.threads.iter().map(|threads| u32::try_from(threads.get()).unwrap_or(u32::MAX));
    let print = |report: &Report| json::write("bench", "", report);
    let settings = Settings {
        threads: threads.collect(),
        print_json: global.json.then_some(&print),
        is_interrupted: &|| interrupted.load(Relaxed),
    };
    bench::run(arguments, &settings)?;
    Ok(exit_code::OK)
}

/// The first signal ends the run after the current measurement. The second one ends it at once, but removes its mounts
/// and directories; a third one does not wait for that.
fn wait_for_signals(interrupted: Arc<AtomicBool>) -> anyhow::Result<()> {
    let cleaning = Arc::new(AtomicBool::new(false));
    let mut ending = vec![SIGINT, SIGTERM, SIGQUIT];
    // A command under nohup ignores it, and must survive the end of the session.
    if !is_ignored(SIGHUP) {
        ending.push(SIGHUP);
    }
    for signal in ending.iter().copied() {
        signal_hook::flag::register_conditional_shutdown(signal, SIGNALLED + signal, cleaning.clone())?;
    }
    let mut signals = Signals::new(ending)?;
    let wait = move || {
        for signal in signals.forever() {
            if !interrupted.swap(true, Relaxed) {
                let what = "the run ends after the current measurement; a second signal ends it now";
                print_message(Level::Note, "", what);
                continue;
            }
            cleaning.store(true, Relaxed);
            print_message(Level::Note, "", "removing mounts and directories; a third signal leaves them");
            bench::cleanup::clean_up(|what| print_message(Level::Warning, "", what));
            crate::memory::exit(SIGNALLED + signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
