//! Description of this machine in a report.

use std::path::{Path, PathBuf};
use std::process::Command;

use report::machine::Machine;

/// Describes this machine. What cannot be determined is `unknown`, not an error.
pub fn describe(xebec: &Path) -> anyhow::Result<Machine> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let unknown = || "unknown".to_string();
    let kibibytes = field(&meminfo, "MemTotal:").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    Ok(Machine {
        processor: field(&cpuinfo, "model name")
            .map_or_else(unknown, |name| name.trim_start_matches([':', ' ']).into()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: kibibytes.unwrap_or(0) * 1024,
        kernel: first_line(Command::new("uname").arg("-sr")).unwrap_or_else(unknown),
        system: field(&release, "PRETTY_NAME=").map_or_else(unknown, |name| name.trim_matches('"').into()),
        load: load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN),
        date: first_line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])).unwrap_or_else(unknown),
        commit: commit().unwrap_or_else(unknown),
        profile: if cfg!(debug_assertions) { "debug: not a measurement" } else { "release" }.into(),
        versions: versions(xebec),
    })
}

fn versions(xebec: &Path) -> Vec<(String, String)> {
    let repair = crate::commands::newest_repair();
    let programs: [(PathBuf, &str); 4] = [
        (xebec.into(), "--version"),
        (repair, "-V"),
        ("find".into(), "--version"),
        ("tar".into(), "--version"),
    ];
    programs
        .into_iter()
        .map(|(program, flag)| {
            let version = first_line(Command::new(&program).arg(flag));
            (program.display().to_string(), version.unwrap_or_else(|| "not installed".into()))
        })
        .collect()
}

fn commit() -> Option<String> {
    let git = || {
        let mut git = Command::new("git");
        git.args(["-C", env!("CARGO_MANIFEST_DIR")]);
        git
    };
    let commit = first_line(git().args(["rev-parse", "--short=12", "HEAD"]))?;
    let changed = first_line(git().args(["status", "--porcelain", "--untracked-files=no"])).is_some();
    Some(if changed { format!("{commit}+") } else { commit })
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
