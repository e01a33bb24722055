//! Listing a large directory, and whole trees whose metadata is compared by many threads, as `git diff` does.

use std::time::Instant;

use anyhow::ensure;
use xebec::Options;

use super::Scale;
use super::threads::{add_scaling, on_threads};
use crate::bench_volume::{BenchDir, BenchVolume, Stamp, layout, names};
use crate::measure::compare;
use crate::record::Target;
use crate::recorder::{Recorder, Row};

const IMAGE_BYTES: u64 = 2 << 30;
const LOG_BYTES: u64 = 64 << 20;
/// Listings per run.
const LISTINGS: u32 = 5;
/// Threads that walk the tree at the same time.
const WALKERS: u32 = 64;
/// Files of a directory of the tree.
const PER_DIRECTORY: u32 = 20;
/// Files that are compared by one call, where there is one for several.
const BATCH: usize = 256;
/// Subdirectories of a directory at its top.
const SUBDIRECTORIES: u32 = 25;

/// Measures listing of a directory, with the metadata of each file.
pub fn list(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let files = scale.files / 2;
    let measure = |volume: BenchVolume| {
        let dir = volume.mkdir("large")?;
        names(files).iter().try_for_each(|name| volume.create(&dir, name))?;
        let list = || {
            let (listed, bytes) = volume.list(&dir)?;
            ensure!(listed == u64::from(files) && bytes == 0, "{listed} files with {bytes} bytes");
            anyhow::Ok(())
        };
        list()?;
        let begin = Instant::now();
        (0..LISTINGS).try_for_each(|_| list())?;
        let nanoseconds = begin.elapsed().as_nanos() as f64 / f64::from(LISTINGS * files);
        drop(dir);
        volume.unmount()?;
        Ok(nanoseconds)
    };
    let task = format!("list {files} names with the metadata of each, per name");
    add_comparison(scale, table, (&task, "ns", 0.2), measure)
}

/// Measures walks of one tree by many threads.
pub fn walks(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let task = format!("{WALKERS} threads compare {} files with what they recorded", tree_files(scale));
    add_comparison(scale, table, (&task, "ms", 0.1), |volume| {
        Ok(1e3 * f64::from(WALKERS) / walks_per_second(scale, volume, WALKERS)?)
    })?;
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    add_scaling(scale, table, ("compare the files of one tree", "trees/s"), &|threads| {
        walks_per_second(scale, BenchVolume::xebec(&image, &layout, Options::default())?, threads)
    })
}

fn add_comparison(
    scale: &Scale,
    table: &mut Recorder<'_>,
    (task, unit, target): (&str, &'static str, f64),
    measure: impl Fn(BenchVolume) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let (ours, other) = compare(
        (scale.rounds, scale.alone),
        || measure(BenchVolume::xebec(&image, &layout, Options::default())?),
        || measure(BenchVolume::kernel(&image, &layout)?),
    )?;
    table.add(Row {
        task: task.into(),
        unit,
        ours_is: "Xebec, as a library",
        other_is: "the kernel's XFS on a loop mount",
        ours,
        other,
        target: (!scale.alone).then_some(Target::RatioAtMost(target)),
    });
    Ok(())
}

/// Number of files in the tree.
fn tree_files(scale: &Scale) -> u32 {
    (scale.files / 20).next_multiple_of(PER_DIRECTORY)
}

/// Creates the tree on a fresh volume, records the metadata of each file, and measures walks of threads, each of which
/// compares all files.
fn walks_per_second(scale: &Scale, volume: BenchVolume, threads: u32) -> anyhow::Result<f64> {
    let paths = make_tree(&volume, tree_files(scale))?;
    let root = volume.root()?;
    let recorded = volume.stamps(&root, &paths)?;
    let index = Index { paths, recorded };
    // The first walk finds what the record has brought into memory.
    compare_all(&volume, &root, &index)?;
    let begin = Instant::now();
    on_threads(threads, &|_| compare_all(&volume, &root, &index))?;
    let rate = f64::from(threads) / begin.elapsed().as_secs_f64();
    drop(root);
    volume.unmount()?;
    Ok(rate)
}

/// Creates empty files in nested directories, and returns their paths.
fn make_tree(volume: &BenchVolume, files: u32) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for number in 0..files / PER_DIRECTORY {
        let path = format!("dir{:03}/sub{:03}", number / SUBDIRECTORIES, number % SUBDIRECTORIES);
        let dir = volume.mkdir_all(&path)?;
        for name in names(PER_DIRECTORY) {
            volume.create(&dir, &name)?;
            paths.push(format!("{path}/{name}"));
        }
    }
    Ok(paths)
}

/// The metadata of all files of a tree, as a version control system keeps it.
struct Index {
    paths: Vec<String>,
    recorded: Vec<Stamp>,
}

fn compare_all(volume: &BenchVolume, root: &BenchDir, index: &Index) -> anyhow::Result<()> {
    for (paths, recorded) in index.paths.chunks(BATCH).zip(index.recorded.chunks(BATCH)) {
        ensure!(volume.stamps(root, paths)? == recorded, "one of {paths:?} has changed");
    }
    Ok(())
}
