//! Developers' tasks: `cargo xtask TASK`.
//!
//! | task | does |
//! |---|---|
//! | `tidy` | the repository rules, each a function in the table `tidy::RULES`; also a test of this package |
//! | `wrap` | breaks comments and Markdown lines that are too wide for `tidy` |
//! | `msrv` | checks that every dependency builds with the Rust version that the workspace declares |
//! | `sample` | unpacks a small XFS image, clean or with a dirty log; needs neither root nor xfsprogs |
//! | `figures` | writes the figures of kept runs (`docs/runs`) into the documents |
//! | `release` | builds `xebec` as it is shipped: with profile-guided optimization |
//! | `try` | creates an image from a directory of this machine, lists it and checks it |
#![forbid(unsafe_code)]

mod msrv;
mod packages;
mod release;
mod sample;
mod tidy;
mod tour;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    let complaints = match task.as_str() {
        "sample" => sample::sample(&arguments).map(|()| Vec::new()),
        "try" => tour::tour(root(), &arguments).map(|()| Vec::new()),
        "release" => release::run(root()).map(|()| Vec::new()),
        "tidy" => tidy::run(root()),
        "wrap" => tidy::wrap(root()).map(|()| Vec::new()),
        "figures" => tidy::write_figures(root()).map(|()| Vec::new()),
        "msrv" => msrv::run(root()),
        _ => Err(anyhow::anyhow!("usage: cargo xtask tidy|wrap|figures|msrv|release|sample|try")),
    };
    match complaints {
        Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
        Ok(complaints) => {
            for complaint in &complaints {
                eprintln!("{complaint}");
            }
            eprintln!("{task}: {} complaints", complaints.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Root directory of the workspace: the parent of this package's.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// Target directory of Cargo.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
