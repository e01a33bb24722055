//! One run of a command: wall time, processor time, peak memory.
//!
//! The peak that the kernel reports of a child is at least what its parent occupied when it started the child (the two
//! share one address space until the child's `execve`, and the peak is kept across it). So a run is started and waited
//! for by a fresh copy of this program, which occupies a few MiB: smaller peaks than that cannot be told apart.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use wait4::Wait4;

/// A command that can be run again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Where it runs.
    pub folder: Option<PathBuf>,
    /// What its output goes to.
    pub output: Output,
}

/// Where the output of a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// To `/dev/null`.
    Discard,
    /// Through a pipe to `cat >/dev/null`: tar does not read files at all when it sees that it writes to `/dev/null`.
    Pipe,
}

/// What one run took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// From start to exit, in seconds.
    pub wall_s: f64,
    /// Processor time in user mode, in seconds.
    pub user_s: f64,
    /// Processor time in the kernel, in seconds. What the kernel does for it in threads of its own is not in it.
    pub system_s: f64,
    /// Largest resident memory, in bytes.
    pub rss_peak_bytes: u64,
}

impl Run {
    /// A run of `words`, the output discarded.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), folder: None, output: Output::Discard }
    }

    /// The same run with one more word.
    #[must_use]
    pub fn with(mut self, word: impl Into<OsString>) -> Self {
        self.words.push(word.into());
        self
    }

    /// The same run in a folder.
    pub fn within(self, folder: &Path) -> Self {
        Self { folder: Some(folder.to_path_buf()), ..self }
    }

    /// The same run with its output through a pipe.
    pub fn piped(self) -> Self {
        Self { output: Output::Pipe, ..self }
    }

    /// As a person would type it.
    pub fn describe(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        let pipe = if self.output == Output::Pipe { " | cat" } else { "" };
        format!("{}{pipe} >/dev/null", words.join(" "))
    }

    fn command(&self) -> anyhow::Result<Command> {
        let (program, arguments) = self.words.split_first().context("a run without a program")?;
        let mut command = Command::new(program);
        command.env_remove(HANDED_RUN).env_remove(MEMORY_KEPT);
        command.args(arguments).stdin(Stdio::null());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        Ok(command)
    }

    /// Runs it once, from a fresh copy of this program. A status other than 0 is an error, with what the command said.
    pub fn measure(&self) -> anyhow::Result<Usage> {
        let program = std::env::current_exe().context("the path of this program")?;
        let output = Command::new(program)
            .env(HANDED_RUN, serde_json::to_string(self)?)
            .output()
            .context("cannot start this program again")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("the report of a run")
    }

    /// Runs it once, as a child of this process.
    fn measure_here(&self) -> anyhow::Result<Usage> {
        let mut command = self.command()?;
        let mut reader = None;
        if self.output == Output::Pipe {
            let mut cat =
                Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("cat")?;
            command.stdout(cat.stdin.take().context("cat's input")?);
            reader = Some(cat);
        } else {
            command.stdout(Stdio::null());
        }
        // Through a file, as a full pipe would stop a talkative command.
        let messages = tempfile()?;
        command.stderr(messages.try_clone()?);
        let start = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.describe()))?;
        drop(command);
        let used = child.wait4().context("wait4")?;
        let wall = start.elapsed();
        if let Some(mut cat) = reader {
            cat.wait().context("cat")?;
        }
        if !used.status.success() {
            bail!("{}: {}\n{}", self.describe(), used.status, tail(messages));
        }
        Ok(Usage {
            wall_s: wall.as_secs_f64(),
            user_s: used.rusage.utime.as_secs_f64(),
            system_s: used.rusage.stime.as_secs_f64(),
            rss_peak_bytes: used.rusage.maxrss,
        })
    }

    /// Runs it once and returns its output: to see that both commands did the same work.
    pub fn output(&self) -> anyhow::Result<Vec<u8>> {
        let output = self.command()?.output().with_context(|| format!("cannot run {}", self.describe()))?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}\n{messages}", self.describe(), output.status);
        }
        Ok(output.stdout)
    }
}

/// The environment variable in which the fresh copy finds its run.
const HANDED_RUN: &str = "XEBEC_BENCH_RUN";

/// Tells the allocator after how many milliseconds it gives memory back; at -1 it keeps what it ever had. The kernel's
/// caches need not ask anybody for memory, nor have they to fill it with zeros; whoever serves for long has his, too.
/// So this process keeps its own from the first turn, which does not count, to the last. A command that is measured
/// does as it always does.
pub const MEMORY_KEPT: &str = "MIMALLOC_PURGE_DELAY";

/// In the fresh copy: makes the run that it was handed and prints what it took. `false` in any other process.
pub fn serve() -> anyhow::Result<bool> {
    let Some(run) = std::env::var_os(HANDED_RUN) else { return Ok(false) };
    let run: Run = serde_json::from_str(&run.to_string_lossy())?;
    println!("{}", serde_json::to_string(&run.measure_here()?)?);
    Ok(true)
}

/// A file without a name.
fn tempfile() -> anyhow::Result<std::fs::File> {
    use rustix::fs::{CWD, Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let folder = std::env::temp_dir();
    let fd = rustix::fs::openat(CWD, &folder, flags, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("a temporary file in {}", folder.display()))?;
    Ok(fd.into())
}

fn tail(mut messages: std::fs::File) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let length = messages.metadata().map_or(0, |metadata| metadata.len());
    let mut text = Vec::new();
    let _ = messages.seek(SeekFrom::Start(length.saturating_sub(2000)));
    let _ = messages.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// What two things give, turn by turn, after one turn of each that does not count (unless it is the only one). Each
/// turn finds a machine that has nothing left to write: what one has made is not written in the time of the other.
pub fn turns<T, U>(
    rounds: u32,
    mut first: impl FnMut() -> anyhow::Result<T>,
    mut second: impl FnMut() -> anyhow::Result<U>,
) -> anyhow::Result<(Vec<T>, Vec<U>)> {
    let mut both = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        rustix::fs::sync();
        let one = first()?;
        rustix::fs::sync();
        let other = second()?;
        if round > 0 || rounds == 1 {
            both.0.push(one);
            both.1.push(other);
        }
        if rounds == 1 {
            break;
        }
    }
    Ok(both)
}

/// What a thing and its peer give, turn by turn. Of a peer that is left out there are no values.
pub fn beside<T>(
    (rounds, alone): (u32, bool),
    ours: impl FnMut() -> anyhow::Result<T>,
    peers: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(Vec<T>, Vec<T>)> {
    if alone {
        return Ok((turns(rounds, ours, || Ok(()))?.0, Vec::new()));
    }
    turns(rounds, ours, peers)
}

/// The middle one of some numbers, the lower of two; NaN of none.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Seconds with three digits that count.
pub fn seconds(duration_s: f64) -> String {
    let duration = Duration::from_secs_f64(duration_s.max(0.0));
    match duration_s {
        s if s >= 10.0 => format!("{s:.1} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        _ => format!("{:.0} ms", duration.as_secs_f64() * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([5.0]), 5.0);
        assert!(median([]).is_nan());
    }

    /// A command that fails must not count as a fast one.
    #[test]
    fn a_failing_command_is_an_error_with_its_words() {
        let run = Run::new(["sh", "-c", "echo broken >&2; exit 3"]);
        let error = run.measure_here().expect_err("status 3").to_string();
        assert!(error.contains("broken") && error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn peak_memory_is_that_of_the_child() {
        let eats = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo ${#x}";
        let usage = Run::new(["sh", "-c", eats]).piped().measure_here().expect("sh runs");
        assert!(usage.rss_peak_bytes > 30_000_000, "{usage:?}");
        assert!(usage.wall_s > 0.0);
    }
}
