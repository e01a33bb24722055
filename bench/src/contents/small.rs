//! Small files, created by several threads in several directories (Chinner, "writeback: plug writeback at a high
//! level").

use std::time::Instant;

use anyhow::Context;
use report::record::Target;
use xebec::{DirtyLimit, MemoryBudget, Options};

use super::{KERNELS, OURS, Scale, kernels, ours};
use crate::bench_volume::{BenchVolume, names};
use crate::engine::threads::on_threads;
use crate::measure::{alternate, compare};
use crate::recorder::{Recorder, Row};

const DIRECTORIES: u32 = 16;
const FILE: [u8; 4096] = [7; 4096];

/// Up to where the time of a run is measured.
#[derive(Clone, Copy)]
enum Until {
    /// All files are written.
    Written,
    /// The volume is unmounted, and its image clean.
    Unmounted,
}

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    scale.small_threads.iter().try_for_each(|threads| by_threads(scale, *threads, table))
}

/// Counts the writes of contents to the device.
pub fn writes(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = scale.image();
    let writes = |plug| device_writes(scale, ours(&image, options(plug))?);
    let (with, without) = alternate(table, scale.rounds, || writes(true), || writes(false))?;
    table.add(Row {
        task: format!("{}: writes of contents to the device", name(scale, 4)),
        unit: "writes",
        ours_is: "one plug over the pass",
        other_is: "a plug for each file",
        ours: with,
        other: without,
        target: Some(Target::RatioAtMost(1.0 / 15.0)),
    });
    Ok(())
}

/// The files in words.
pub fn name(scale: &Scale, threads: u32) -> String {
    format!("{DIRECTORIES} directories of {} files of 4 KiB, threads: {threads}", scale.files)
}

fn by_threads(scale: &Scale, threads: u32, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = scale.image();
    let mut add = |end: &str, until, other_is, peer: &dyn Fn() -> anyhow::Result<f64>, ratio| {
        let own = || rate(scale, ours(&image, options(true))?, threads, until);
        let (ours, other) = compare(table, (scale.rounds, scale.alone), own, peer)?;
        let (task, target) = (format!("{}, {end}", name(scale, threads)), Some(Target::RatioAtLeast(ratio)));
        table.add(Row { task, unit: "files/s", ours_is: OURS, other_is, ours, other, target });
        anyhow::Ok(())
    };
    let kernel = |until| rate(scale, kernels(&image)?, threads, until);
    add("written", Until::Written, KERNELS, &|| kernel(Until::Written), 4.0)?;
    add("and unmounted", Until::Unmounted, KERNELS, &|| kernel(Until::Unmounted), 4.0)?;
    let tmpfs = || rate(scale, BenchVolume::tmpfs()?, threads, Until::Written);
    add("and unmounted", Until::Unmounted, "tmpfs, which writes nothing", &tmpfs, 3.0)
}

/// A cache that holds all files. The kernel's limit for dirty pages, a fifth of memory, holds them as well.
fn options(plug_over_pass: bool) -> Options {
    let mut options = Options { memory: Some(MemoryBudget::new(8 << 30)), ..Options::default() };
    options.contents.dirty = Some(DirtyLimit::Bytes(2 << 30));
    options.contents.plug_over_pass = plug_over_pass;
    options
}

fn rate(scale: &Scale, volume: BenchVolume, threads: u32, until: Until) -> anyhow::Result<f64> {
    let begin = Instant::now();
    write_all(scale, &volume, threads)?;
    let written = begin.elapsed();
    volume.unmount()?;
    let time = match until {
        Until::Written => written,
        Until::Unmounted => begin.elapsed(),
    };
    Ok(f64::from(DIRECTORIES * scale.files) / time.as_secs_f64())
}

fn device_writes(scale: &Scale, volume: BenchVolume) -> anyhow::Result<f64> {
    write_all(scale, &volume, 4)?;
    volume.sync()?;
    let writes = volume.volume().context("a volume of Xebec")?.statistics().contents.plug.writes;
    volume.unmount()?;
    Ok(writes as f64)
}

/// Writes all files.
pub fn write_all(scale: &Scale, volume: &BenchVolume, threads: u32) -> anyhow::Result<()> {
    let write_some = |thread: u32| {
        let names = names(scale.files);
        (thread..DIRECTORIES).step_by(threads as usize).try_for_each(|directory| {
            let dir = volume.mkdir(&format!("{directory}"))?;
            names.iter().try_for_each(|name| volume.file(&dir, name, true)?.write(&FILE, 0))
        })
    };
    on_threads(threads, &write_some).map(drop)
}
