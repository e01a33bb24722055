//! `stat` of names that are in memory, by one thread and by two, of the same paths.

use std::time::Instant;

use xebec::Options;

use super::Scale;
use crate::bench_volume::{BenchDir, BenchVolume, layout, names};
use crate::measure::{alternate, compare};
use crate::table::{Row, Table, Target};

const FILES: u32 = 1000;
/// The directory of the files, three names deep.
const FOLDER: &str = "project/src/module";
const IMAGE_BYTES: u64 = 1 << 30;
const LOG_BYTES: u64 = 64 << 20;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let existing = paths("");
    let absent = paths("absent-");
    let task = "stat a path of four names";
    table.add(against_kernel(scale, task, &existing, Target::RatioAtMost(0.125))?);
    let task = "stat a path of four names, the last of which does not exist";
    table.add(against_kernel(scale, task, &absent, Target::RatioAtMost(0.1))?);
    let image = scale.folder.join("engine.img");
    let rate = |threads| {
        on_fresh(
            BenchVolume::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default())?,
            |volume, root| calls_per_second(scale, volume, root, &existing, threads),
        )
    };
    let (ours, other) = alternate(scale.rounds, || rate(2), || rate(1))?;
    table.add(Row {
        task: "stat a path of four names, two threads with the same paths".into(),
        unit: "calls/s",
        ours_is: "two threads",
        other_is: "one thread",
        ours,
        other,
        target: Some(Target::RatioAtLeast(1.9)),
    });
    Ok(())
}

fn paths(prefix: &str) -> Vec<String> {
    names(FILES).iter().map(|name| format!("{FOLDER}/{prefix}{name}")).collect()
}

fn against_kernel(scale: &Scale, task: &str, paths: &[String], target: Target) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let nanoseconds =
        |volume| on_fresh(volume, |volume, root| Ok(1e9 / calls_per_second(scale, volume, root, paths, 1)?));
    let (ours, other) = compare(
        (scale.rounds, scale.alone),
        || nanoseconds(BenchVolume::xebec(&image, &layout, Options::default())?),
        || nanoseconds(BenchVolume::kernel(&image, &layout)?),
    )?;
    Ok(Row {
        task: task.into(),
        unit: "ns",
        ours_is: "Xebec, as a library",
        other_is: "the kernel's XFS on a loop mount",
        ours,
        other,
        target: Some(target),
    })
}

/// Creates the files on a fresh volume, measures, and unmounts.
fn on_fresh(
    volume: BenchVolume,
    measure: impl FnOnce(&BenchVolume, &BenchDir) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let folder = volume.mkdir_all(FOLDER)?;
    names(FILES).iter().try_for_each(|name| volume.create(&folder, name))?;
    let root = volume.root()?;
    let result = measure(&volume, &root)?;
    drop((folder, root));
    volume.unmount()?;
    Ok(result)
}

/// Calls per second of threads that stat all paths in turn, after one uncounted round.
fn calls_per_second(
    scale: &Scale,
    volume: &BenchVolume,
    root: &BenchDir,
    paths: &[String],
    threads: usize,
) -> anyhow::Result<f64> {
    let round = || paths.iter().try_for_each(|path| volume.exists(root, path).map(drop));
    round()?;
    let rounds = scale.files * 10 / FILES;
    let work = || (0..rounds).try_for_each(|_| round());
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })?;
    let calls = f64::from(rounds) * (paths.len() * threads) as f64;
    Ok(calls / begin.elapsed().as_secs_f64())
}
