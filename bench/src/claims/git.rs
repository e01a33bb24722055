//! The program `git` on trees in memory: 64 processes of `git diff` at once, and `git status`.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};

use crate::bench_volume::BenchVolume;
use crate::child;
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
/// The user wants the run to end. A subject that fails is noted, and left out.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let is_mounted =
        |subject: &&Subject| matches!(subject, Subject::Mounted | Subject::Kernel | Subject::Directory(_));
    let subjects: Vec<Subject> = scale.subjects.iter().filter(is_mounted).cloned().collect();
    // Xebec is the first, with which the others are compared.
    if subjects.first() != Some(&Subject::Mounted) {
        if !scale.alone {
            recorder.note("git: not measured: Xebec cannot be mounted (there is no /dev/fuse)".into());
        }
        return Ok(());
    }
    if !recorder.has_peer("git", false, peers::installed(&["git"])) {
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

/// How old files are. A file that is as new as the index, in whole seconds, is read again by each `git diff`.
const AGE: Duration = Duration::from_secs(3600);

/// A repository whose files are all committed. Their metadata is in memory, and equal to what the index has.
fn repository(tree: &Path, files: u32) -> anyhow::Result<PathBuf> {
    let time = SystemTime::now() - AGE;
    for file in 0..files {
        let folder = tree.join(format!("part{}/dir{}", file / (16 * PER_DIRECTORY), file / PER_DIRECTORY));
        if file % PER_DIRECTORY == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        let mut new = File::create(folder.join(format!("file{file:06}")))?;
        new.write_all(format!("file {file}\n").as_bytes())?;
        new.set_modified(time)?;
    }
    run_git(tree, &["init", "-q", "--template="])?;
    run_git(tree, &["add", "."])?;
    run_git(tree, &["commit", "-q", "-m", "All of it"])?;
    run_git(tree, &["status", "--porcelain"])?;
    let newest = newest_entry(tree)?;
    ensure!(
        newest < index_time(tree)?,
        "the files are not older than the index: git would read their contents"
    );
    Ok(tree.into())
}

/// The latest modification time of the files, in seconds, as the index has them.
fn newest_entry(tree: &Path) -> anyhow::Result<i64> {
    let output = git(tree, &["ls-files", "--debug"]).output().context("git")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = |line: &str| line.trim().strip_prefix("mtime: ")?.split(':').next()?.parse().ok();
    text.lines().filter_map(seconds).max().with_context(|| format!("git ls-files: {output:?}"))
}

/// When the index was written, in seconds.
fn index_time(tree: &Path) -> anyhow::Result<i64> {
    Ok(std::fs::metadata(tree.join(".git/index"))?.mtime())
}

fn git(tree: &Path, words: &[&str]) -> Command {
    let mut git = child::git(tree, words);
    git.stdout(Stdio::piped()).stderr(Stdio::piped());
    git
}

fn run_git(tree: &Path, words: &[&str]) -> anyhow::Result<()> {
    let output = git(tree, words).output().context("git")?;
    ensure!(output.status.success() && output.stdout.is_empty(), "git {words:?}: {output:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is as new as the index is read, although nothing changed; others are not.
    #[test]
    fn git_reads_no_contents() {
        let Some(()) = needs::met(needs::tools(&["git"])) else { return };
        let folder = tempfile::tempdir().expect("a directory");
        let tree = repository(folder.path(), 2 * PER_DIRECTORY).expect("a repository");
        let file = tree.join("part0/dir0/file000000");
        // Other contents, with the same size and modification time. No program can set the change time, so git is told
        // not to compare it.
        let written = std::fs::metadata(&file).expect("a file").modified().expect("a time");
        std::fs::write(&file, "FILE 0\n").expect("it can be written");
        File::options().write(true).open(&file).and_then(|file| file.set_modified(written)).expect("a time");
        let diff = || git(&tree, &["-c", "core.trustctime=false", "diff"]).output().expect("git").stdout;
        assert!(diff().is_empty(), "the change is not seen: git compares metadata alone");
        File::options()
            .write(true)
            .open(tree.join(".git/index"))
            .and_then(|index| index.set_modified(written))
            .expect("a time");
        assert!(!diff().is_empty(), "an index that is not newer is not trusted");
    }
}
