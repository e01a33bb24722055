//! One run of a command: wall time, CPU time, peak memory.
//!
//! The peak that the kernel reports for a child includes the memory of its parent at `fork`, because both share an
//! address space until `execve`. So a command is started by a fresh process of this program, which has a few MiB;
//! smaller peaks cannot be measured.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use wait4::Wait4;

use crate::child;
use crate::recorder::Recorder;

/// A command to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredCommand {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Working directory.
    pub folder: Option<PathBuf>,
    /// Environment variables that are set, or removed.
    environment: Vec<(OsString, Option<OsString>)>,
    /// Destination of its output.
    pub output: Output,
}

/// Destination of the output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// `/dev/null`.
    Discard,
    /// A pipe to `cat >/dev/null`: tar does not read files if its output is `/dev/null`.
    Pipe,
}

/// Resources of one run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time from start to exit, in seconds.
    pub wall_s: f64,
    /// User CPU time in seconds.
    pub user_s: f64,
    /// System CPU time in seconds, without kernel threads.
    pub system_s: f64,
    /// Peak resident memory in bytes.
    pub rss_peak_bytes: u64,
}

impl From<&Command> for MeasuredCommand {
    /// Takes the program, its arguments, the working directory and the changes of the environment. Redirections of the
    /// command are ignored: the output is discarded.
    fn from(command: &Command) -> Self {
        let environment = command.get_envs();
        Self {
            folder: command.get_current_dir().map(Path::to_path_buf),
            environment: environment.map(|(name, value)| (name.into(), value.map(Into::into))).collect(),
            ..Self::new(std::iter::once(command.get_program()).chain(command.get_args()))
        }
    }
}

impl MeasuredCommand {
    /// A command with its output discarded.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { argv, folder: None, environment: Vec::new(), output: Output::Discard }
    }

    /// Adds an argument.
    #[must_use]
    pub fn with(mut self, word: impl Into<OsString>) -> Self {
        self.argv.push(word.into());
        self
    }

    /// Sets the working directory.
    pub fn within(self, folder: &Path) -> Self {
        Self { folder: Some(folder.to_path_buf()), ..self }
    }

    /// Sends the output through a pipe.
    pub fn piped(self) -> Self {
        Self { output: Output::Pipe, ..self }
    }

    /// The command as typed in a shell.
    pub fn describe(&self) -> String {
        let argv: Vec<_> = self.argv.iter().map(|word| word.to_string_lossy()).collect();
        let pipe = if self.output == Output::Pipe { " | cat" } else { "" };
        format!("{}{pipe} >/dev/null", argv.join(" "))
    }

    fn command(&self) -> anyhow::Result<Command> {
        let (program, arguments) = self.argv.split_first().context("a command without a program")?;
        let mut command = child::command(program);
        command.env_remove(COMMAND_VARIABLE).env_remove(PURGE_DELAY_VARIABLE);
        command.args(arguments);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        Ok(command)
    }

    /// Runs it once, from a fresh process of this program. An exit status other than 0 is an error with the command's
    /// messages.
    pub fn measure(&self) -> anyhow::Result<Usage> {
        let program = std::env::current_exe().context("the path of this program")?;
        let output = child::command(program)
            .env(COMMAND_VARIABLE, serde_json::to_string(self)?)
            .output()
            .context("cannot start this program again")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("the output of the measuring process")
    }

    /// Runs it once, as a child of this process.
    fn measure_here(&self) -> anyhow::Result<Usage> {
        let mut command = self.command()?;
        let mut reader = None;
        if self.output == Output::Pipe {
            let mut cat =
                child::command("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("cat")?;
            command.stdout(cat.stdin.take().context("cat's input")?);
            reader = Some(cat);
        } else {
            command.stdout(Stdio::null());
        }
        // A file, because a full pipe would block the command.
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

    /// Runs it once and returns its output, to check that both commands do the same work.
    pub fn output(&self) -> anyhow::Result<Vec<u8>> {
        let output = self.command()?.output().with_context(|| format!("cannot run {}", self.describe()))?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}\n{messages}", self.describe(), output.status);
        }
        Ok(output.stdout)
    }
}

/// Environment variable that passes the command to the fresh process.
const COMMAND_VARIABLE: &str = "XEBEC_BENCH_RUN";

/// Environment variable of mimalloc: after how many milliseconds freed memory is returned to the system; -1 for never.
/// This process keeps its memory from the first run, which is not counted, as the kernel and long-running servers keep
/// theirs. Measured commands use the default.
pub const PURGE_DELAY_VARIABLE: &str = "MIMALLOC_PURGE_DELAY";

/// In the fresh process: runs the command and prints its resources. Returns `false` in any other process.
pub fn serve() -> anyhow::Result<bool> {
    let Some(run) = std::env::var_os(COMMAND_VARIABLE) else { return Ok(false) };
    let run: MeasuredCommand = serde_json::from_str(&run.to_string_lossy())?;
    println!("{}", serde_json::to_string(&run.measure_here()?)?);
    Ok(true)
}

/// An unnamed temporary file.
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

/// Runs two workloads alternately and returns their results, unless the user wants to end that. The first run of each
/// is not counted unless it is the only one. Each run starts after `sync`, so that writeback of one does not run in
/// the time of the other.
pub fn alternate<T, U>(
    recorder: &Recorder<'_>,
    rounds: u32,
    mut first: impl FnMut() -> anyhow::Result<T>,
    mut second: impl FnMut() -> anyhow::Result<U>,
) -> anyhow::Result<(Vec<T>, Vec<U>)> {
    let mut both = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        recorder.go_on()?;
        rustix::fs::sync();
        let result = first()?;
        recorder.go_on()?;
        rustix::fs::sync();
        let peer_result = second()?;
        if round > 0 || rounds == 1 {
            both.0.push(result);
            both.1.push(peer_result);
        }
        if rounds == 1 {
            break;
        }
    }
    Ok(both)
}

/// Like [`alternate`], for a workload and its peer; with `alone` the peer is left out and has no results.
pub fn compare<T>(
    recorder: &Recorder<'_>,
    (rounds, alone): (u32, bool),
    ours: impl FnMut() -> anyhow::Result<T>,
    peers: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(Vec<T>, Vec<T>)> {
    if alone {
        return Ok((alternate(recorder, rounds, ours, || Ok(()))?.0, Vec::new()));
    }
    alternate(recorder, rounds, ours, peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failing command is not a fast one.
    #[test]
    fn a_failing_command_is_an_error_with_its_messages() {
        let run = MeasuredCommand::new(["sh", "-c", "echo broken >&2; exit 3"]);
        let error = run.measure_here().expect_err("status 3").to_string();
        assert!(error.contains("broken") && error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn peak_memory_is_that_of_the_child() {
        let script = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo ${#x}";
        let usage = MeasuredCommand::new(["sh", "-c", script]).piped().measure_here().expect("sh runs");
        assert!(usage.rss_peak_bytes > 30_000_000, "{usage:?}");
        assert!(usage.wall_s > 0.0);
    }
}
