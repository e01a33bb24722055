//! Developers' chores as `cargo xtask CHORE`.
//!
//! | chore | does |
//! |---|---|
//! | `tidy` | the house rules, each a function in the table [`tidy::RULES`]; also a test of this package |
//! | `msrv` | whether every dependency builds with the Rust version that the workspace declares |
#![forbid(unsafe_code)]

mod msrv;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let complaints = match chore.as_str() {
        "tidy" => tidy::run(root()),
        "msrv" => msrv::run(root()),
        _ => Err(anyhow::anyhow!("usage: cargo xtask tidy|msrv")),
    };
    match complaints {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            for complaint in &complaints {
                eprintln!("{complaint}");
            }
            eprintln!("{chore}: {} complaints", complaints.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{chore}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace: the parent of this package's.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}
