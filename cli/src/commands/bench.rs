//! `xebec bench`: measures Xebec beside other file systems.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bench::report::Report;
use bench::{Arguments, Settings};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::Global;
use crate::json;
use crate::output::exit_code;

/// Runs `bench`. The first signal ends the run after the current measurement, a second one at once.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
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
