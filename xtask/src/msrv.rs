//! Checks that no dependency requires a newer Rust version than the workspace declares.
//!
//! clippy's `incompatible_msrv` checks our own code; it does not see the requirements of dependencies.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::packages::packages;

/// Lists the packages that require a newer Rust version than the workspace declares.
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
