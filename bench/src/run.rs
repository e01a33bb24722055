//! Runs the chosen experiments.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::arguments::{Arguments, Settings};
use crate::record::Results;
use crate::recorder::{Interrupted, Observer, Recorder};
use crate::registry::{self, Chosen};
use crate::report::{Report, compare, text};
use crate::scale::{Scale, Size};
use crate::subject::Subject;
use crate::{engine, machine, measure, mounted};

/// Does what a process is for that this program started for a measurement. Returns `false` in any other process, which
/// goes on.
///
/// # Errors
/// Those of the measured work.
pub fn serve() -> anyhow::Result<bool> {
    Ok(measure::serve()? || engine::serve()? || mounted::nothing::serve()?)
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
    let observer = Progress { is_interrupted: settings.is_interrupted, quiet: json };
    let outcome = chosen.iter().try_for_each(|chosen| {
        let (results, outcome) = run_one(chosen, &scale, &observer);
        if !results.measurements.is_empty() || !results.notes.is_empty() {
            report.experiments.push(results);
        }
        // What was measured by now is kept, whatever happens.
        write(arguments, &report)?;
        outcome
    });
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
    let outcome = chosen.parts().try_for_each(|(name, part)| {
        recorder.go_on()?;
        part.run(scale, &mut recorder).with_context(|| format!("{}/{name}", chosen.experiment.name))
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

/// Follows a run on a terminal.
struct Progress<'i> {
    is_interrupted: &'i dyn Fn() -> bool,
    quiet: bool,
}

impl Observer for Progress<'_> {
    fn begins(&self, experiment: &str) {
        if !self.quiet {
            eprintln!("{experiment} ...");
        }
    }

    fn ended(&self, results: &Results, task: &str) {
        if !self.quiet {
            text::print_task(results, task);
        }
    }

    fn is_interrupted(&self) -> bool {
        (self.is_interrupted)()
    }
}

/// A directory for images, removed at the end if it is our own.
enum Folder {
    Given(PathBuf),
    Own(tempfile::TempDir),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Own(folder) => folder.path(),
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
    Ok(Folder::Own(
        folder.with_context(|| format!("{} (--images names another directory)", parent.display()))?,
    ))
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
    let rounds = arguments.rounds.unwrap_or(if size == Size::Full { 5 } else { 1 });
    Ok(Scale {
        folder: folder.into(),
        xebec: std::env::current_exe().context("the path of this program")?,
        size,
        rounds,
        threads,
        alone: arguments.alone,
        inodes,
        subjects: subjects(arguments)?,
    })
}

fn subjects(arguments: &Arguments) -> anyhow::Result<Vec<Subject>> {
    let mut subjects = vec![Subject::LIBRARY];
    if !arguments.alone {
        if Path::new("/dev/fuse").exists() {
            subjects.push(Subject::Mounted);
        }
        if rustix::process::geteuid().is_root() {
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
    let mut command = if alone || !is_root { Command::new(program) } else { in_namespace(&program) };
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
