//! Processes that end while they have many files without names open, which closes and removes them all.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xebec::{NewFile, Volume};

use crate::bench_volume::{BenchDir, BenchVolume};
use crate::engine::threads::on_threads;
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Run, Task};

/// Environment variable that passes the number of files and the directory to a process.
const VARIABLE: &str = "XEBEC_BENCH_HOLD";
/// Descriptors of a process that are no such files.
const OTHERS: u64 = 64;

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let most = getrlimit(Resource::Nofile).maximum.map_or(u64::MAX, |most| most.saturating_sub(OTHERS));
    let files = scale.pick(10_000, 5_000, 50).min(u32::try_from(most).unwrap_or(u32::MAX));
    let name = format!("processes end, each with {files} open files without names");
    let run = |volume: &BenchVolume, threads| end_all(volume, threads, files);
    Task::rate(scale, name, "files/s", &run).measure(scale, &scale.subjects, recorder)?;
    recorder.note(
        "The library has no processes: threads close their files. On a mount through FUSE, a process does not wait \
         until the server has closed its files."
            .into(),
    );
    Ok(())
}

fn end_all(volume: &BenchVolume, processes: u32, files: u32) -> anyhow::Result<Run> {
    let dir = volume.mkdir("tmp")?;
    let seconds = match (volume.volume(), &dir, volume.mount_point()) {
        (Some(volume), BenchDir::Xebec(dir), _) => {
            let held = on_threads(processes, &|_| hold(volume, *dir, files))?;
            let held = held.into_iter().map(|held| std::sync::Mutex::new(Some(held))).collect::<Vec<_>>();
            let begin = Instant::now();
            on_threads(processes, &|thread| {
                drop(held.get(thread as usize).and_then(|held| held.lock().ok()?.take()));
                Ok(())
            })?;
            begin.elapsed().as_secs_f64()
        }
        (_, _, Some(folder)) => in_processes(&folder.join("tmp"), processes, files)?,
        _ => anyhow::bail!("a volume without a directory"),
    };
    Ok((f64::from(processes * files) / seconds).into())
}

/// Files without names, and what keeps them open.
fn hold<'v>(
    volume: &'v Volume,
    dir: xebec::FileId,
    files: u32,
) -> anyhow::Result<Vec<(impl Sized + use<'v>, xebec::File<'v>)>> {
    let open = |_| {
        let handle = volume.create_tmpfile(dir, &NewFile::regular())?;
        let file = volume.open_file(handle.id())?;
        Ok((handle, file))
    };
    (0..files).map(open).collect()
}

/// Seconds until all processes have ended, from when they may.
fn in_processes(folder: &Path, processes: u32, files: u32) -> anyhow::Result<f64> {
    let started = (0..processes).map(|_| start(folder, files)).collect::<anyhow::Result<Vec<_>>>()?;
    let begin = Instant::now();
    // They end when their input does.
    let (children, inputs): (Vec<Child>, Vec<ChildStdin>) = started.into_iter().unzip();
    drop(inputs);
    for mut child in children {
        let status = child.wait()?;
        ensure!(status.success(), "a process with open files failed: {status}");
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Starts a process, and waits until it has its files open.
fn start(folder: &Path, files: u32) -> anyhow::Result<(Child, ChildStdin)> {
    let mut command = crate::child::command(std::env::current_exe().context("the path of this program")?);
    command.env(VARIABLE, format!("{files}:{}", folder.display()));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let mut ready = [0];
    output.context("its output")?.read_exact(&mut ready).context("a process with open files failed")?;
    Ok((child, input.context("its input")?))
}

/// In the fresh process: opens the files, and waits for the end of its input. Returns `false` in any other process.
///
/// # Errors
/// A file cannot be opened.
pub fn serve() -> anyhow::Result<bool> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(false) };
    let value = value.to_string_lossy();
    let (files, folder) = value.split_once(':').context("a number of files and a directory")?;
    let files: u64 = files.parse()?;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(files + OTHERS), ..limit })?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = |_| rustix::fs::openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR);
    let held = (0..files).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut output = std::io::stdout().lock();
    output.write_all(b"\n")?;
    output.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // The kernel closes them.
    std::mem::forget(held);
    Ok(true)
}
