//! Checks an image and prints the findings: `cargo run -p xebec-check --example check -- IMAGE [THREADS [MEMORY]]`.
//!
//! Exit codes are those of `xebec check`: 0 clean, 4 damaged, 8 cannot be checked.

use std::path::Path;
use std::process::ExitCode;

use block::{FileDevice, OpenOptions};
use xebec_check::{Finding, Observer, Options, Suppressed};

struct Print;

impl Observer for Print {
    fn finding(&self, finding: &Finding) {
        println!("{finding}");
    }
    fn suppressed(&self, suppressed: &Suppressed) {
        let Suppressed { severity, structure, field, count } = suppressed;
        println!("{severity}: {structure}: {field}: {count} more");
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: check IMAGE [THREADS [MEMORY]]");
        return ExitCode::from(16);
    };
    let device = match FileDevice::open(Path::new(&path), &OpenOptions::default()) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(8);
        }
    };
    let mut options = Options::default();
    if let Some(threads) = args.next().and_then(|text| text.parse().ok()) {
        options.threads = threads;
    }
    if let Some(bytes) = args.next().and_then(|text| text.parse().ok()) {
        options.memory_budget = bytes;
    }
    match xebec_check::check(&device, &options, &Print) {
        Ok(summary) => {
            eprintln!("{summary:?}");
            ExitCode::from(if summary.is_clean() { 0 } else { 4 })
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(8)
        }
    }
}
