//! Calls on paths of four names that are in memory: `stat` of files that exist and that do not, and `open`.

use std::time::Instant;

use report::record::Target;
use xebec::Options;

use super::Scale;
use super::threads::{add_scaling, on_threads};
use crate::bench_volume::{BenchDir, BenchVolume, layout, names};
use crate::measure::compare;
use crate::recorder::{Recorder, Row};

const FILES: u32 = 1000;
/// The directory of the files, three names deep.
const FOLDER: &str = "project/src/module";
const IMAGE_BYTES: u64 = 1 << 30;
const LOG_BYTES: u64 = 64 << 20;

/// A call on a path from the root directory.
type Call = fn(&BenchVolume, &BenchDir, &str) -> anyhow::Result<()>;

/// Measures `stat`.
pub fn stat(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let call: Call = |volume, root, path| volume.exists(root, path).map(drop);
    let existing = Calls { scale, call, paths: paths("") };
    let absent = Calls { scale, call, paths: paths("absent-") };
    existing.against_kernel(table, "stat a path of four names", 0.125)?;
    absent.against_kernel(table, "stat a path of four names, the last of which does not exist", 0.1)?;
    existing.scaling(table, "stat the same paths of four names")?;
    absent.scaling(table, "stat the same paths that do not exist")
}

/// Measures `open` and `close`.
pub fn open(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let call: Call = |volume, root, path| volume.open_close(root, path);
    let many = Calls { scale, call, paths: paths("") };
    let one = Calls { scale, call, paths: paths("").into_iter().take(1).collect() };
    many.against_kernel(table, "open and close a path of four names", 0.1)?;
    one.scaling(table, "open and close the same file")
}

fn paths(prefix: &str) -> Vec<String> {
    names(FILES).iter().map(|name| format!("{FOLDER}/{prefix}{name}")).collect()
}

/// A call that is made on paths in turn.
struct Calls<'s> {
    scale: &'s Scale,
    call: Call,
    paths: Vec<String>,
}

impl Calls<'_> {
    fn against_kernel(&self, table: &mut Recorder<'_>, task: &str, target: f64) -> anyhow::Result<()> {
        let image = self.scale.folder.join("engine.img");
        let layout = layout(IMAGE_BYTES, LOG_BYTES);
        let nanoseconds = |volume| Ok(1e9 / self.on_fresh(volume, 1)?);
        let (ours, other) = compare(
            table,
            (self.scale.rounds, self.scale.alone),
            || nanoseconds(BenchVolume::xebec(&image, &layout, Options::default())?),
            || nanoseconds(BenchVolume::kernel(&image, &layout)?),
        )?;
        table.add(Row {
            task: task.into(),
            unit: "ns",
            ours_is: "Xebec, as a library",
            other_is: "the kernel's XFS on a loop mount",
            ours,
            other,
            target: (!self.scale.alone).then_some(Target::RatioAtMost(target)),
        });
        Ok(())
    }

    fn scaling(&self, table: &mut Recorder<'_>, task: &str) -> anyhow::Result<()> {
        let image = self.scale.folder.join("engine.img");
        let layout = layout(IMAGE_BYTES, LOG_BYTES);
        add_scaling(self.scale, table, (task, "calls/s"), &|threads| {
            self.on_fresh(BenchVolume::xebec(&image, &layout, Options::default())?, threads)
        })
    }

    /// Creates the files on a fresh volume, measures calls per second, and unmounts.
    fn on_fresh(&self, volume: BenchVolume, threads: u32) -> anyhow::Result<f64> {
        let folder = volume.mkdir_all(FOLDER)?;
        names(FILES).iter().try_for_each(|name| volume.create(&folder, name))?;
        let root = volume.root()?;
        let rate = self.calls_per_second(&volume, &root, threads)?;
        drop((folder, root));
        volume.unmount()?;
        Ok(rate)
    }

    /// Calls per second of threads that go through all paths in turn, after one uncounted round.
    fn calls_per_second(&self, volume: &BenchVolume, root: &BenchDir, threads: u32) -> anyhow::Result<f64> {
        let round = || self.paths.iter().try_for_each(|path| (self.call)(volume, root, path));
        round()?;
        let rounds = self.scale.files as usize * 10 / self.paths.len();
        let begin = Instant::now();
        on_threads(threads, &|_| (0..rounds).try_for_each(|_| round()))?;
        let calls = (rounds * self.paths.len()) as f64 * f64::from(threads);
        Ok(calls / begin.elapsed().as_secs_f64())
    }
}
