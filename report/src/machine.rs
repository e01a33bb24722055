//! The machine of a report.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::git;

/// [`Machine::profile`] of an optimized build.
pub const RELEASE: &str = "release";

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
    /// Commit of this checkout, with a `+` if files other than documents are modified.
    pub commit: String,
    /// Profile of this program, and of the `xebec` that it built.
    pub profile: String,
    /// Programs and their versions.
    pub versions: Vec<(String, String)>,
}

impl Machine {
    /// Describes this machine, and the versions of programs, each of which is run with a flag. What cannot be
    /// determined is `unknown`.
    pub fn here(programs: &[(PathBuf, &str)]) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let unknown = || "unknown".to_string();
        let kibibytes =
            field(&meminfo, "MemTotal:").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let system = field(&release, "PRETTY_NAME=");
        Self {
            processor: field(&cpuinfo, "model name")
                .map_or_else(unknown, |name| name.trim_start_matches([':', ' ']).into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes.unwrap_or(0) * 1024,
            kernel: first_line(Command::new("uname").arg("-sr")).unwrap_or_else(unknown),
            system: system.map_or_else(unknown, |name| name.trim_matches('"').into()),
            load: load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN),
            date: first_line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))
                .unwrap_or_else(unknown),
            commit: commit().unwrap_or_else(unknown),
            profile: if cfg!(debug_assertions) { "debug: not a measurement" } else { RELEASE }.into(),
            versions: programs.iter().map(version).collect(),
        }
    }
}

fn version((program, flag): &(PathBuf, &str)) -> (String, String) {
    let version = first_line(Command::new(program).arg(flag));
    (program.display().to_string(), version.unwrap_or_else(|| "not installed".into()))
}

/// Documents are not counted: they change nothing that is measured, and get the figures of the runs.
fn commit() -> Option<String> {
    let git = |words: &[&str]| first_line(&mut git::command(Path::new(env!("CARGO_MANIFEST_DIR")), words));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let of_programs = [":/", ":(top,exclude)docs", ":(top,exclude)*.md"];
    let words = [&["status", "--porcelain", "--untracked-files=no", "--"][..], &of_programs].concat();
    Some(if git(&words).is_some() { format!("{commit}+") } else { commit })
}

/// The rest of the line that begins with `key`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_string())
}
