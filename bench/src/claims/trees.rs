//! Trees in memory, whose metadata many threads compare with what they recorded, as `git diff` does.

use std::time::Instant;

use anyhow::{Context, ensure};

use crate::bench_volume::{BenchVolume, names};
use crate::engine::threads::on_threads;
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Run, Task};

/// Threads that compare at once.
const WALKERS: u32 = 64;
const PER_DIRECTORY: u32 = 25;
/// What Xebec may take of the time of a peer at most.
const RATIO_MAX: f64 = 0.1;

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let directories: u32 = scale.pick(1200, 200, 8);
    for (place, is_shared) in [("one tree", true), ("a tree each", false)] {
        let directories = if is_shared { directories } else { directories.div_ceil(16) };
        let name = format!("{WALKERS} threads compare {} files of {place}", directories * PER_DIRECTORY);
        let run = |volume: &BenchVolume, _| compare(volume, directories, is_shared);
        Task::time(name, "ms", &[WALKERS], RATIO_MAX, &run).measure(scale, &scale.subjects, recorder)?;
    }
    Ok(())
}

fn compare(volume: &BenchVolume, directories: u32, is_shared: bool) -> anyhow::Result<Run> {
    let names = names(PER_DIRECTORY);
    let mut trees = Vec::new();
    for tree in 0..if is_shared { 1 } else { WALKERS } {
        let mut paths = Vec::new();
        for directory in 0..directories {
            let path = format!("tree{tree}/part{}/dir{directory}", directory / 16);
            let dir = volume.mkdir_all(&path)?;
            names.iter().try_for_each(|name| volume.create(&dir, name))?;
            paths.extend(names.iter().map(|name| format!("{path}/{name}")));
        }
        trees.push(paths);
    }
    let root = volume.root()?;
    let recorded =
        trees.iter().map(|paths| volume.stamps(&root, paths)).collect::<anyhow::Result<Vec<_>>>()?;
    let begin = Instant::now();
    on_threads(WALKERS, &|thread| {
        let at = if is_shared { 0 } else { thread as usize };
        let (paths, recorded) = trees.get(at).zip(recorded.get(at)).context("a tree")?;
        ensure!(volume.stamps(&root, paths)? == *recorded, "a file has changed");
        Ok(())
    })?;
    Ok((begin.elapsed().as_secs_f64() * 1e3).into())
}
