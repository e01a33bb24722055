//! The declared Rust version against what the dependencies declare.
//!
//! Own code is watched by clippy's `incompatible_msrv`, which knows since when each item of the standard library is
//! stable. What clippy does not see is a dependency that asks for a newer compiler: that is looked up here.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::packages::packages;

/// Lists the packages that ask for a newer Rust than the workspace declares.
pub fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let packages = packages(root)?;
    let ours = packages
        .iter()
        .find(|package| package["name"] == env!("CARGO_PKG_NAME"))
        .and_then(declared)
        .context("the workspace declares no rust-version")?;
    Ok(packages.iter().filter_map(|package| newer(package, ours)).collect())
}

fn newer(package: &Value, ours: (u32, u32)) -> Option<String> {
    let theirs = declared(package)?;
    (theirs > ours).then(|| {
        let name = package["name"].as_str().unwrap_or("?");
        let version = package["version"].as_str().unwrap_or("?");
        format!(
            "{name} {version} needs Rust {}.{}; Cargo.toml declares {}.{}",
            theirs.0, theirs.1, ours.0, ours.1
        )
    })
}

/// A package's `rust-version`, without the patch number.
fn declared(package: &Value) -> Option<(u32, u32)> {
    let mut numbers = package["rust_version"].as_str()?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next().unwrap_or(Ok(0)).ok()?))
}
