//! Runs the chosen experiments.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use report::machine::Machine;
use report::record::Results;
use report::{Report, compare, text};

use crate::arguments::{Arguments, Settings};
use crate::cleanup::Registered;
use crate::progress::Progress;
use crate::recorder::{Interrupted, Observer, Recorder};
use crate::registry::{self, Chosen};
use crate::scale::{Scale, Size};
use crate::subject::Subject;
use crate::{claims, cleanup, commands, engine, measure, mounted, peers};

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
    refuse_equal(arguments)?;
    restart(arguments.alone)?;
    cleanup::begin();
    let folder = folder(arguments)?;
    let scale = scale(arguments, settings, &folder.path)?;
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let command: Vec<String> = words.collect();
    let mut report =
        Report::new(command.join(" "), arguments.quick || arguments.smoke, describe(&scale.xebec));
    if !json {
        text::print_head(&report);
    }
    let observer = Progress::new(&chosen, &scale, settings.is_interrupted, json);
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
    let results = recorder.end();
    observer.experiment_ended(&results);
    (results, outcome)
}

/// This machine, and the versions of what is measured.
fn describe(xebec: &Path) -> Machine {
    Machine::here(&[
        (xebec.into(), "--version"),
        (commands::newest_repair(), "-V"),
        ("find".into(), "--version"),
        ("tar".into(), "--version"),
    ])
}

/// A run must not replace what it reads.
fn refuse_equal(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(input) = &arguments.sharing_results else { return Ok(()) };
    let is_same = |output: &Path| {
        let both = input.canonicalize().ok().zip(output.canonicalize().ok());
        output == input || both.is_some_and(|(input, output)| input == output)
    };
    for output in arguments.results.iter().chain(&arguments.html) {
        ensure!(
            !is_same(output),
            "{}: --sharing-results reads this file, which the results would replace (name another one)",
            input.display()
        );
    }
    Ok(())
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

/// A directory for images.
struct Folder {
    path: PathBuf,
    /// Whether it is removed at the end.
    is_own: bool,
    _registered: Registered,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_own {
            // A file of it may be in use. The system removes temporary files some time.
            let _ = std::fs::remove_dir_all(&self.path);
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
        let registered = cleanup::kept(&path);
        return Ok(Folder { path, is_own: false, _registered: registered });
    }
    let parent = std::env::temp_dir();
    let made = cleanup::new_directory(&parent);
    let (path, registered) =
        made.with_context(|| format!("{} (--images names another directory)", parent.display()))?;
    Ok(Folder { path, is_own: true, _registered: registered })
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

/// Executes this program again, with an allocator that keeps freed memory, and a `PATH` with all directories of
/// programs. With peers of the kernel it gets a mount namespace of its own, so that no mount outlives it.
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
    command.env("PATH", peers::path(std::env::var_os("PATH").unwrap_or_default()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn results_do_not_replace_what_is_read() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("trace"), "{}").expect("a file");
        std::os::unix::fs::symlink(path("trace"), path("link")).expect("a link");
        let refused = |option: &str, output: &str| {
            let words = ["bench", "--sharing-results", &path("trace"), option, &path(output)];
            refuse_equal(&Line::parse_from(words).arguments).is_err()
        };
        assert!(refused("--results", "trace") && refused("--results", "link") && refused("--html", "trace"));
        assert!(!refused("--results", "other"));
        assert_eq!(std::fs::read(path("trace")).expect("it stays"), b"{}");
    }
}
