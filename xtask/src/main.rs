//! Developers' chores as `cargo xtask CHORE`.
//!
//! | chore | does |
//! |---|---|
//! | `tidy` | the repository rules, each a function in the table `tidy::RULES`; also a test of this package |
//! | `wrap` | breaks the comments and texts that are too wide for `tidy` |
//! | `msrv` | whether every dependency builds with the Rust version that the workspace declares |
//! | `sample` | a small XFS image, clean or with a dirty log, without root and without XFS tools |
//! | `release` | `xebec` and `xebec-bench` as they are shipped: optimized by a profile of what they do |
//! | `try` | such an image, shown, checked and extracted by `xebec` |
#![forbid(unsafe_code)]

mod msrv;
mod packages;
mod release;
mod sample;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let chore = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    let complaints = match chore.as_str() {
        "sample" => sample::sample(&arguments).map(|()| Vec::new()),
        "try" => sample::tour(root()).map(|()| Vec::new()),
        "release" => release::run(root()).map(|()| Vec::new()),
        "tidy" => tidy::run(root()),
        "wrap" => tidy::wrap(root()).map(|()| Vec::new()),
        "msrv" => msrv::run(root()),
        _ => Err(anyhow::anyhow!("usage: cargo xtask tidy|wrap|msrv|release|sample|try")),
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

/// Where Cargo builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
