//! Reports: results of measurements with the machine and the command, as text, JSON and HTML.
//!
//! | module | subject |
//! |---|---|
//! | [`record`], [`machine`] | what was measured, and where |
//! | [`text`] | the terminal |
//! | [`html`] | one file for a browser, with charts |
//! | [`charts`] | scaling curves, bars and latencies as SVG |
//! | [`compare`] | two reports |
//! | [`markdown`], [`digest`] | tables for documents |
//! | [`figures`] | documents whose figures are those of kept runs |
//! | [`sharing`] | what operations that commute share |
//! | [`tables`] | the tables that text and HTML show |
//! | [`tasks`] | measurements grouped by task; claims judged |
//! | [`terms`] | the terms of a report, explained |
//! | [`number`] | rounding, prefixes and units |
//! | [`git`] | running git |
//!
//! # Invariants
//! Text and HTML are made of the structures that the JSON file holds, so a report that was read from a file looks like
//! that of the run.

#![forbid(unsafe_code)]

pub mod charts;
pub mod compare;
pub mod digest;
pub mod figures;
pub mod git;
pub mod html;
pub mod machine;
pub mod markdown;
pub mod number;
pub mod record;
pub mod sharing;
pub mod tables;
pub mod tasks;
pub mod terms;
#[cfg(test)]
mod tests;
pub mod text;

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::record::Results;

/// Version of the JSON format.
pub const VERSION: u32 = 3;

/// Load average from which times are too long to be trusted.
const LOAD_MAX: f64 = 0.5;

/// All results of one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the JSON format: [`VERSION`].
    #[serde(rename = "format")]
    pub version: u32,
    /// The command line.
    #[serde(rename = "arguments")]
    pub command: String,
    /// Whether sizes and runs were reduced, so that the numbers are only a first impression.
    pub quick: bool,
    /// The machine and the versions.
    pub machine: Machine,
    /// The experiments, in the order in which they ran.
    pub experiments: Vec<Results>,
    /// Whether the command ended without an error or an interruption.
    pub finished: bool,
}

/// What every version of the format has.
#[derive(Deserialize)]
struct AnyVersion {
    #[serde(rename = "format")]
    version: u32,
}

impl Report {
    /// A report without results.
    pub fn new(command: String, quick: bool, machine: Machine) -> Self {
        Self { version: VERSION, command, quick, machine, experiments: Vec::new(), finished: false }
    }

    /// Reads a report.
    ///
    /// # Errors
    /// The file cannot be read, is no report, or is a report of another version.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display().to_string();
        let bytes = std::fs::read(path).with_context(|| {
            format!("cannot read the report {shown} (`xebec bench --results FILE` writes one)")
        })?;
        Self::parse(&shown, &bytes)
    }

    /// Reads a report from the bytes of a file, whose path errors name.
    ///
    /// # Errors
    /// It is no report, or is a report of another version.
    pub fn parse(shown: &str, bytes: &[u8]) -> anyhow::Result<Self> {
        let AnyVersion { version } = serde_json::from_slice(bytes).with_context(|| {
            format!("{shown} is not a report (name a JSON file that `xebec bench --results FILE` wrote)")
        })?;
        if version != VERSION {
            bail!(
                "{shown} is a report of version {version}, but this program reads version {VERSION} \
                 (repeat the measurement with this program, or read the file with the program that wrote it)"
            );
        }
        serde_json::from_slice(bytes)
            .with_context(|| format!("{shown} is damaged, or not a report (repeat the measurement)"))
    }

    /// The report as JSON text.
    ///
    /// # Errors
    /// None is expected.
    pub fn to_json(&self) -> anyhow::Result<String> {
        serde_json::to_string(self).context("the report as JSON")
    }

    /// Writes the report as JSON. A file with this name is replaced at once, or stays as it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        replace(path, &(self.to_json()? + "\n"))
    }

    /// Writes the report as one HTML file that needs no other. A file with this name is replaced at once, or stays as
    /// it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_html(&self, path: &Path) -> anyhow::Result<()> {
        replace(path, &html::page(self)?)
    }

    /// The load in words.
    pub fn load(&self) -> String {
        if self.machine.load.is_nan() {
            return "unknown".into();
        }
        format!("{} before the first run", self.machine.load)
    }

    /// Reasons to distrust the numbers.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.quick {
            warnings.push(
                "This was a quick run with small sizes: the numbers are only a first impression.".into(),
            );
        }
        if self.machine.profile.starts_with("debug") {
            warnings.push(
                "This was an unoptimized build: the numbers mean nothing (build with --release).".into(),
            );
        }
        if self.machine.load > LOAD_MAX {
            warnings.push(format!(
                "The machine was busy, with a load of {} before the first run: times are too long, and ratios less \
                 accurate.",
                self.machine.load
            ));
        }
        if !self.finished {
            warnings.push("The command did not finish: measurements are missing.".into());
        }
        warnings
    }
}

/// Writes a file under a temporary name in the same directory, and renames it. Devices and pipes are written directly.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write the report {} (name another file)", path.display());
    // The rename replaces the file that a symbolic link refers to, not the link.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    if path.exists() && !path.is_file() {
        return std::fs::write(&path, text).with_context(failed);
    }
    let name = path.file_name().context("a path that names no file").with_context(failed)?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, &path));
    if written.is_err() {
        // It may not exist.
        let _ = std::fs::remove_file(&temporary);
    }
    written.with_context(failed)
}
