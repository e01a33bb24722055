//! The packages of this workspace and of its dependencies, from `cargo metadata`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Returns the `packages` of `cargo metadata`.
pub fn packages(root: &Path) -> Result<Vec<Value>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root);
    let output = cargo.output().context("cargo metadata")?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {}", complaints.trim());
    let mut metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => anyhow::bail!("cargo metadata lists no packages"),
    }
}
