//! Writeback by several flushers, and by one, on a device that writes 500 MB/s.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use xebec::{DirtyLimit, MemoryBudget, Options};

use super::Scale;
use crate::bench_volume::{BenchVolume, file_device, layout, make, names};
use crate::engine::threads::on_threads;
use crate::measure::alternate;
use crate::rate_device::RateDevice;
use crate::recorder::{Recorder, Row};

const DEVICE_BYTES_PER_SECOND: u64 = 500_000_000;
const IMAGE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 64 << 20;
const DIRECTORIES: u32 = 16;
const FILE: [u8; 4096] = [7; 4096];
const PIECE: usize = 1 << 20;

const SEVERAL: &str = "the default number of flushers";
const ONE: &str = "one flusher";

/// Results of one run.
#[derive(Clone, Copy)]
struct Run {
    rate: f64,
    writes: f64,
}

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    for threads in [1, 2] {
        let task = format!("{DIRECTORIES} directories of {} files of 4 KiB, threads: {threads}", scale.files);
        compare(scale, table, (&task, "files/s"), &|volume| small(scale, volume, threads))?;
        let task = format!("files of {} MiB, threads: {threads}", (scale.stream_bytes / 8) >> 20);
        compare(scale, table, (&task, "MB/s"), &|volume| stream(scale, volume, threads))?;
    }
    Ok(())
}

/// Adds the rows of one experiment.
fn compare(
    scale: &Scale,
    table: &mut Recorder<'_>,
    (name, unit): (&str, &'static str),
    work: &dyn Fn(&BenchVolume) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let (ours, other) =
        alternate(table, scale.rounds, || run_on(scale, None, work), || run_on(scale, Some(1), work))?;
    let mut add = |task, unit, of: fn(&Run) -> f64| {
        let (ours, other) = (ours.iter().map(of).collect(), other.iter().map(of).collect());
        table.add(Row { task, unit, ours_is: SEVERAL, other_is: ONE, ours, other, target: None });
    };
    add(format!("{name}, and a sync"), unit, |run| run.rate);
    add(format!("{name}: writes of contents to the device"), "writes", |run| run.writes);
    Ok(())
}

fn run_on(
    scale: &Scale,
    flushers: Option<usize>,
    work: &dyn Fn(&BenchVolume) -> anyhow::Result<f64>,
) -> anyhow::Result<Run> {
    let image = scale.image();
    make(&image, &layout(IMAGE_BYTES, LOG_BYTES))?;
    let device = Arc::new(RateDevice::new(file_device(&image)?, DEVICE_BYTES_PER_SECOND));
    let mut options = Options { memory: Some(MemoryBudget::new(4 << 30)), ..Options::default() };
    options.contents.dirty = Some(DirtyLimit::Bytes(256 << 20));
    options.contents.flushers = flushers;
    let volume = BenchVolume::on(device, options)?;
    let begin = Instant::now();
    let amount = work(&volume)?;
    volume.sync()?;
    let seconds = begin.elapsed().as_secs_f64();
    let writes = volume.volume().context("a volume of Xebec")?.statistics().contents.plug.writes;
    volume.unmount()?;
    Ok(Run { rate: amount / seconds, writes: writes as f64 })
}

/// Creates small files. Returns how many.
fn small(scale: &Scale, volume: &BenchVolume, threads: u32) -> anyhow::Result<f64> {
    let write_some = |thread: u32| {
        let names = names(scale.files);
        (thread..DIRECTORIES).step_by(threads as usize).try_for_each(|directory| {
            let dir = volume.mkdir(&format!("{directory}"))?;
            names.iter().try_for_each(|name| volume.file(&dir, name, true)?.write(&FILE, 0))
        })
    };
    on_threads(threads, &write_some)?;
    Ok(f64::from(DIRECTORIES * scale.files))
}

/// Each thread writes a file in a directory of its own. Returns how many megabytes.
fn stream(scale: &Scale, volume: &BenchVolume, threads: u32) -> anyhow::Result<f64> {
    let bytes = scale.stream_bytes / 8;
    let write_one = |thread: u32| {
        let piece = vec![7; PIECE];
        let dir = volume.mkdir(&format!("{thread}"))?;
        let file = volume.file(&dir, "large", true)?;
        (0..bytes).step_by(PIECE).try_for_each(|offset| file.write(&piece, offset))
    };
    on_threads(threads, &write_one)?;
    Ok((bytes * u64::from(threads)) as f64 / 1e6)
}
