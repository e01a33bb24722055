//! The program `git` on trees in memory: 64 processes of `git diff` at once, and `git status`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::bench_volume::BenchVolume;
use crate::peers;
use crate::recorder::Recorder;
use crate::scale::{Scale, Size};
use crate::subject::Subject;
use crate::tasks::{Run, Task};

/// Processes at once.
const WALKERS: u32 = 64;
const PER_DIRECTORY: u32 = 25;

/// Runs the measurement, where there are paths for a program.
///
/// # Errors
/// A subject other than Xebec as a library never fails a task, so none is expected.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let is_mounted =
        |subject: &&Subject| matches!(subject, Subject::Mounted | Subject::Kernel | Subject::Directory(_));
    let subjects: Vec<Subject> = scale.subjects.iter().filter(is_mounted).cloned().collect();
    if subjects.is_empty() || !recorder.has_peer("git", false, peers::installed(&["git"])) {
        return Ok(());
    }
    let walkers = if scale.size == Size::Smoke { 2 } else { WALKERS };
    let trees = scale.pick(8, 4, 1);
    let files = scale.pick(4_000, 500, 25);
    let name = format!("{walkers} processes of git diff on {trees} trees of {files} files in memory");
    let run = |volume: &BenchVolume, _| compare(volume, walkers, trees, files);
    Task { target: None, ..Task::time(name, "ms", &[walkers], 1.0, &run) }
        .measure(scale, &subjects, recorder)?;
    let run = |volume: &BenchVolume, _| status(volume, files);
    let name = format!("git status on a tree of {files} files in memory");
    Task { target: None, ..Task::time(name, "ms", &[1], 1.0, &run) }.measure(scale, &subjects, recorder)
}

fn compare(volume: &BenchVolume, walkers: u32, trees: u32, files: u32) -> anyhow::Result<Run> {
    let root = volume.mount_point().context("a mount")?;
    let trees = (0..trees).map(|tree| repository(&root.join(format!("tree{tree}")), files));
    let trees = trees.collect::<anyhow::Result<Vec<PathBuf>>>()?;
    let begin = Instant::now();
    let walks = trees.iter().cycle().take(walkers as usize).map(|tree| git(tree, &["diff"]).spawn());
    let walks = walks.collect::<Result<Vec<_>, _>>().context("git")?;
    for walk in walks {
        let output = walk.wait_with_output()?;
        ensure!(output.status.success() && output.stdout.is_empty(), "git diff: {output:?}");
    }
    Ok((begin.elapsed().as_secs_f64() * 1e3).into())
}

fn status(volume: &BenchVolume, files: u32) -> anyhow::Result<Run> {
    let tree = repository(&volume.mount_point().context("a mount")?.join("tree"), files)?;
    let begin = Instant::now();
    run_git(&tree, &["status", "--porcelain"])?;
    Ok((begin.elapsed().as_secs_f64() * 1e3).into())
}

/// A repository whose files are committed. Their metadata are in memory, and those that git recorded.
fn repository(tree: &Path, files: u32) -> anyhow::Result<PathBuf> {
    for file in 0..files {
        let folder = tree.join(format!("part{}/dir{}", file / (16 * PER_DIRECTORY), file / PER_DIRECTORY));
        if file % PER_DIRECTORY == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        std::fs::write(folder.join(format!("file{file:06}")), format!("file {file}\n"))?;
    }
    run_git(tree, &["init", "-q"])?;
    run_git(tree, &["add", "."])?;
    run_git(tree, &["commit", "-q", "-m", "All of it"])?;
    // Files as new as the index are read again. The index is written once more, and is newer then.
    run_git(tree, &["update-index", "-q", "--really-refresh"])?;
    run_git(tree, &["status", "--porcelain"])?;
    Ok(tree.into())
}

fn git(tree: &Path, words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args([
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=b",
        "-c",
        "user.email=b@localhost",
        "-c",
        "gc.auto=0",
    ]);
    git.args(words).current_dir(tree).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    git
}

fn run_git(tree: &Path, words: &[&str]) -> anyhow::Result<()> {
    let output = git(tree, words).output().context("git")?;
    ensure!(output.status.success() && output.stdout.is_empty(), "git {words:?}: {output:?}");
    Ok(())
}
