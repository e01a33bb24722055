//! The machine of a report.

use serde::{Deserialize, Serialize};

/// The machine, and the versions of the measured programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the CPU.
    pub processor: String,
    /// CPUs available to this process.
    pub cores: usize,
    /// Size of memory in bytes.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub system: String,
    /// Load average over a minute, before the first run.
    #[serde(deserialize_with = "crate::record::number")]
    pub load: f64,
    /// Date and time of the first run, in UTC.
    pub date: String,
    /// Commit of this checkout, with a `+` if files are modified.
    pub commit: String,
    /// Profile of this program, and of the `xebec` that it built.
    pub profile: String,
    /// Programs and their versions.
    pub versions: Vec<(String, String)>,
}
