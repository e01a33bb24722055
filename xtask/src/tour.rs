//! The first command of the README: builds `xebec` and demonstrates it on a directory of this machine.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::target;

/// Default source directory: every Linux has it, and every user may read it.
const DIRECTORY: &str = "/usr/share/doc";

/// Lines shown of each command's output.
const LINES: usize = 12;

/// `try [DIRECTORY]`: creates an image from a directory, lists it and checks it.
pub fn tour(root: &Path, arguments: &[String]) -> Result<()> {
    let directory = arguments.first().map_or(DIRECTORY, String::as_str);
    let directory = std::path::absolute(directory).with_context(|| format!("no path: {directory}"))?;
    ensure!(directory.is_dir(), "{}: not a directory (cargo xtask try DIRECTORY)", directory.display());
    eprintln!("building xebec (about two minutes the first time)");
    // The profile of `cargo test`, so that the tests do not build everything again.
    let built = Command::new("cargo")
        .args(["build", "--quiet", "--package", "xebec-cli"])
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "the build failed");
    let folder = target(root).join("try");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let directory = directory.to_str().context("the name of the directory is not UTF-8")?;
    let commands: [&[&str]; 4] = [
        &["create", "disk.xfs", "--force", "--from", directory],
        &["ls", "-l", "disk.xfs"],
        &["info", "disk.xfs"],
        &["check", "disk.xfs"],
    ];
    let xebec = std::path::absolute(target(root))?.join("debug/xebec");
    commands.iter().try_for_each(|arguments| show(&xebec, arguments, &folder))?;
    eprintln!("\nThe image is {}", folder.join("disk.xfs").display());
    Ok(())
}

/// Runs one command and prints the first lines of its output.
fn show(xebec: &Path, arguments: &[&str], folder: &Path) -> Result<()> {
    let line = format!("xebec {}", arguments.join(" "));
    eprintln!("\n$ {line}");
    let output = Command::new(xebec)
        .args(arguments)
        .current_dir(folder)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", xebec.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().take(LINES).for_each(|line| println!("{line}"));
    let more = text.lines().count().saturating_sub(LINES);
    if more > 0 {
        println!("... {more} more lines");
    }
    ensure!(output.status.success(), "{line}: {}", output.status);
    Ok(())
}
