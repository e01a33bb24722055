//! Small files, created by several threads in several directories (Chinner, "writeback: plug writeback at a high
//! level").

use std::time::Instant;

use anyhow::Context;
use xebec::{DirtyLimit, MemoryBudget, Options};

use super::{Scale, compare, ours};
use crate::bench_volume::{BenchVolume, names};
use crate::measure::alternate;
use crate::table::{Row, Table, Target};

const DIRECTORIES: u32 = 8;
const THREADS: u32 = 4;
const FILE: [u8; 4096] = [7; 4096];

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let files = scale.files;
    let name = format!("{DIRECTORIES} directories of {files} files of 4 KiB, {THREADS} threads");
    let work = |volume| rate(scale, volume, false);
    table.add(compare(scale, (&name, "files/s"), Some(4.0), &options(true), &work)?);
    let work = |volume| rate(scale, volume, true);
    table.add(compare(scale, (&format!("{name}, and a sync"), "files/s"), None, &options(true), &work)?);
    let image = scale.image();
    let writes = |plug| device_writes(scale, ours(&image, options(plug))?);
    let (with, without) = alternate(scale.rounds, || writes(true), || writes(false))?;
    table.add(Row {
        task: "the same: writes of contents to the device".into(),
        unit: "writes",
        ours_is: "one plug over the pass",
        other_is: "a plug for each file",
        ours: with,
        other: without,
        target: Some(Target::RatioAtMost(1.0 / 15.0)),
    });
    Ok(())
}

/// A cache that holds all files. The kernel's limit for dirty pages, a fifth of memory, holds them as well.
fn options(plug_over_pass: bool) -> Options {
    let mut options = Options { memory: Some(MemoryBudget::new(8 << 30)), ..Options::default() };
    options.contents.dirty = Some(DirtyLimit::Bytes(2 << 30));
    options.contents.plug_over_pass = plug_over_pass;
    options
}

fn rate(scale: &Scale, volume: BenchVolume, sync: bool) -> anyhow::Result<f64> {
    let begin = Instant::now();
    write_all(scale, &volume)?;
    if sync {
        volume.sync()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    volume.unmount()?;
    Ok(f64::from(DIRECTORIES * scale.files) / seconds)
}

fn device_writes(scale: &Scale, volume: BenchVolume) -> anyhow::Result<f64> {
    write_all(scale, &volume)?;
    volume.sync()?;
    let writes = volume.volume().context("a volume of Xebec")?.statistics().contents.plug.writes;
    volume.unmount()?;
    Ok(writes as f64)
}

fn write_all(scale: &Scale, volume: &BenchVolume) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || write_some(scale, volume, thread))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

fn write_some(scale: &Scale, volume: &BenchVolume, thread: u32) -> anyhow::Result<()> {
    let names = names(scale.files);
    for directory in (thread..DIRECTORIES).step_by(THREADS as usize) {
        let dir = volume.mkdir(&format!("{directory}"))?;
        names.iter().try_for_each(|name| volume.file(&dir, name, true)?.write(&FILE, 0))?;
    }
    Ok(())
}
