//! Runs the chosen experiments.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use report::record::Results;
use report::{Report, compare, text};

use crate::arguments::{Arguments, Settings};
use crate::cleanup::Registered;
use crate::progress::Progress;
use crate::recorder::{Interrupted, Observer, Recorder};
use crate::registry::{self, Chosen};
use crate::scale::{Scale, Size};
use crate::subject::Subject;
use crate::{claims, cleanup, engine, machine, measure, mounted, peers};

/// Does what a process is for that this program started for a measurement. Returns `false` in any other process, which
/// goes on.
///
/// # Errors
/// Those of the measured work.
pub fn serve() -> anyhow::Result<bool> {
    Ok(measure::serve()? || engine::serve()? || mounted::nothing::serve()? || claims::teardown::serve()?)
}

/// Runs the command.
///
/// # Errors
/// Xebec failed, or a file cannot be written.
pub fn run(arguments: &Arguments, settings: &Settings<'_>) -> anyhow::Result<()> {
    let json = settings.print_json.is_some();
    if let [before, after] = arguments.compare.as_slice() {
        return compare::print(&Report::read(before)?, &Report::read(after)?);
    }
    if arguments.list {
        print!("{}", registry::listing());
        return Ok(());
    }
    let chosen = registry::choose(&arguments.experiments)?;
    restart(arguments.alone)?;
    let folder = folder(arguments)?;
    let scale = scale(arguments, settings, folder.path())?;
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let command: Vec<String> = words.collect();
    let mut report =
        Report::new(command.join(" "), arguments.quick || arguments.smoke, machine::describe(&scale.xebec)?);
    if !json {
        text::print_head(&report);
    }
    let observer = Progress::new(&chosen, scale.size, settings.is_interrupted, json);
    let outcome = chosen.iter().try_for_each(|chosen| {
        let (results, outcome) = run_one(chosen, &scale, &observer);
        if !results.is_empty() {
            report.experiments.push(results);
        }
        // What was measured by now is kept, whatever happens.
        write(arguments, &report)?;
        outcome
    });
    observer.clear();
    report.finished = outcome.is_ok();
    write(arguments, &report)?;
    match settings.print_json {
        Some(print) => print(&report)?,
        None => text::print_foot(&report),
    }
    outcome
}

fn run_one(chosen: &Chosen, scale: &Scale, observer: &dyn Observer) -> (Results, anyhow::Result<()>) {
    let mut recorder = Recorder::begin(chosen.experiment.results(), observer);
    if let (false, Err(why)) = (scale.alone, &scale.kernel) {
        recorder.note(format!("the kernel's XFS was not measured: {why}"));
    }
    let outcome = chosen.parts().try_for_each(|part| {
        recorder.run(&part, scale).with_context(|| format!("{}/{}", chosen.experiment.name, part.name))
    });
    (recorder.end(), outcome)
}

fn write(arguments: &Arguments, report: &Report) -> anyhow::Result<()> {
    if let Some(path) = &arguments.results {
        report.write_json(path)?;
    }
    if let Some(path) = &arguments.html {
        report.write_html(path)?;
    }
    Ok(())
}

/// A directory for images, removed at the end if it is our own.
enum Folder {
    Given(PathBuf),
    Own(tempfile::TempDir, #[expect(dead_code, reason = "it is dropped with the directory")] Registered),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Own(folder, _) => folder.path(),
        }
    }
}

fn folder(arguments: &Arguments) -> anyhow::Result<Folder> {
    let given =
        arguments.images.clone().or_else(|| std::env::var_os("XEBEC_BENCH_IMAGES").map(PathBuf::from));
    if let Some(path) = given {
        // One of our own: files in it are replaced.
        let path = path.join("xebec-bench");
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        return Ok(Folder::Given(path));
    }
    let parent = std::env::temp_dir();
    let folder = tempfile::Builder::new().prefix("xebec-bench-").tempdir_in(&parent);
    let folder =
        folder.with_context(|| format!("{} (--images names another directory)", parent.display()))?;
    let registered = cleanup::directory(folder.path());
    Ok(Folder::Own(folder, registered))
}

fn scale(arguments: &Arguments, settings: &Settings<'_>, folder: &Path) -> anyhow::Result<Scale> {
    let size = match (arguments.smoke, arguments.quick) {
        (true, _) => Size::Smoke,
        (false, true) => Size::Quick,
        (false, false) => Size::Full,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let mut threads = settings.threads.clone();
    if threads.is_empty() {
        let most = if size == Size::Smoke { 2 } else { cpus.clamp(2, 64) };
        threads = (0..7).map(|log| 1 << log).filter(|threads| *threads <= most).collect();
    }
    threads.sort_unstable();
    threads.dedup();
    let inodes = match size {
        Size::Full => arguments.inodes,
        Size::Quick => arguments.inodes.min(500_000),
        Size::Smoke => 20_000,
    };
    let kernel = if arguments.alone { Err("not wanted".into()) } else { peers::kernel(folder) };
    let rounds = arguments.rounds.unwrap_or(if size == Size::Full { 5 } else { 1 });
    Ok(Scale {
        folder: folder.into(),
        xebec: std::env::current_exe().context("the path of this program")?,
        size,
        rounds,
        threads,
        alone: arguments.alone,
        subjects: subjects(arguments, &kernel)?,
        kernel,
        sharing: arguments.sharing_results.clone(),
        inodes,
    })
}

fn subjects(arguments: &Arguments, kernel: &Result<(), String>) -> anyhow::Result<Vec<Subject>> {
    let mut subjects = vec![Subject::LIBRARY];
    if !arguments.alone {
        if Path::new("/dev/fuse").exists() {
            subjects.push(Subject::Mounted);
        }
        if kernel.is_ok() {
            subjects.push(Subject::Kernel);
        }
    }
    for path in &arguments.on {
        let metadata = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        subjects.push(if metadata.is_dir() { Subject::Directory(path) } else { Subject::Image(path) });
    }
    if arguments.ab {
        subjects.extend(Subject::VARIANTS);
    }
    Ok(subjects)
}

/// Executes this program again, with an allocator that keeps freed memory. With peers of the kernel it gets a mount
/// namespace of its own, so that no mount outlives it.
fn restart(alone: bool) -> anyhow::Result<()> {
    const RESTARTED: &str = "XEBEC_BENCH_AGAIN";
    if std::env::var_os(RESTARTED).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("the path of this program")?;
    let is_root = rustix::process::geteuid().is_root();
    let may_unshare = !alone && is_root && peers::installed(&["unshare"]).is_ok();
    let mut command = if !may_unshare { Command::new(program) } else { in_namespace(&program) };
    command.args(std::env::args_os().skip(1)).env(RESTARTED, "1").env(measure::PURGE_DELAY_VARIABLE, "-1");
    Err(command.exec()).with_context(|| format!("cannot run {}", command.get_program().display()))
}

fn in_namespace(program: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]).arg(program);
    unshare
}

/// Whether an error says that the user ended the run.
pub fn is_interruption(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Interrupted>())
}
