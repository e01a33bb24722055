//! Writing three times as much as there is memory, by three policies of reclaim (Gorman, "Reduce filesystem writeback
//! from page reclaim").
//!
//! The device writes 500 MB/s, and what is written at once waits for it once. Its own speed is measured with large
//! writes in turn, so that what a sleep takes too long counts for both. Dirty data may take 40 % of the memory, as in
//! the post. `files` writes files of 10 MiB in pieces of 4 KiB by 1 to 64 threads. `mixed` writes one large file in
//! such pieces, and then pieces of it, of a small file that is used all the time, and of memory of the process in
//! turns.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use block::{Device, WriteRun};
use report::record::Target;
use xebec::{DirtyLimit, MemoryBudget, Options, ReclaimPolicy};

use super::Scale;
use crate::bench_volume::{BenchVolume, file_device, layout, make};
use crate::measure::alternate;
use crate::rate_device::RateDevice;
use crate::recorder::{Recorder, Row};

const DEVICE_BYTES_PER_SECOND: u64 = 500_000_000;
const PIECE: usize = 4096;
/// Sequential writes of the device alone: as much as one plug of writeback has.
const SEQUENTIAL: usize = 4 << 20;
const IMAGE_BYTES: u64 = 4 << 30;
const LOG_BYTES: u64 = 64 << 20;

const NEVER: &str = "reclaim never writes";
const IN_TROUBLE: &str = "reclaim writes in trouble";
const DIRECT: &str = "reclaim writes";
/// Ratio of rates that are not told apart: runs of one policy differ by as much.
const SAME: f64 = 0.97;

const ALONE: &str = "the device alone, written sequentially";

/// Results of one run.
#[derive(Clone, Copy, Default)]
struct Run {
    mb_per_second: f64,
    /// MiB written by reclaim.
    reclaimed: f64,
    /// Percentiles of the time of one write in milliseconds.
    p50: f64,
    p99: f64,
    p999: f64,
}

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    for threads in scale.reclaim_threads {
        let name =
            format!("files of {} MiB, three times the memory, threads: {threads}", scale.reclaim_file >> 20);
        compare(scale, table, &name, &|policy| files(scale, *threads, policy))?;
    }
    compare(scale, table, "a large file, then mixed, three times the memory", &|policy| mixed(scale, policy))
}

/// Adds the rows of one experiment.
fn compare(
    scale: &Scale,
    table: &mut Recorder<'_>,
    name: &str,
    run: &dyn Fn(ReclaimPolicy) -> anyhow::Result<Run>,
) -> anyhow::Result<()> {
    let never = || run(ReclaimPolicy::Never);
    let others = || Ok((run(ReclaimPolicy::OnlyInTrouble)?, sequential(scale)?));
    let (ours, others) = alternate(table, scale.rounds, never, others)?;
    let (trouble, alone): (Vec<Run>, Vec<Run>) = others.into_iter().unzip();
    let (again, direct) = alternate(table, scale.rounds, never, || run(ReclaimPolicy::WriteFromDirect))?;
    let mut add =
        |task: String, unit, of: fn(&Run) -> f64, (ours, other, other_is): (&[Run], &[Run], _), target| {
            let (ours, other) = (ours.iter().map(of).collect(), other.iter().map(of).collect());
            table.add(Row { task, unit, ours_is: NEVER, other_is, ours, other, target });
        };
    let rate: fn(&Run) -> f64 = |run| run.mb_per_second;
    let (in_trouble, direct) = ((&*ours, &*trouble, IN_TROUBLE), (&*again, &*direct, DIRECT));
    let ratio_min = |ratio| Some(Target::RatioAtLeast(ratio));
    add(name.into(), "MB/s", rate, (&*ours, &*alone, ALONE), ratio_min(0.95));
    add(name.into(), "MB/s", rate, in_trouble, ratio_min(SAME));
    add(name.into(), "MB/s", rate, direct, ratio_min(SAME));
    add(format!("{name}: written by reclaim"), "MiB", |run| run.reclaimed, direct, Some(Target::AtMost(0.0)));
    add(format!("{name}: half of the writes take at most"), "ms", |run| run.p50, direct, None);
    add(format!("{name}: 99 %"), "ms", |run| run.p99, direct, None);
    add(format!("{name}: 99.9 %"), "ms", |run| run.p999, direct, Some(Target::AtMost(50.0)));
    Ok(())
}

/// The speed of the device.
fn sequential(scale: &Scale) -> anyhow::Result<Run> {
    // It follows another run at once, whose writeback must not run in its time.
    rustix::fs::sync();
    let image = scale.image();
    make(&image, &layout(IMAGE_BYTES, LOG_BYTES))?;
    let device = RateDevice::new(file_device(&image)?, DEVICE_BYTES_PER_SECOND);
    let (buf, bytes) = (vec![7; SEQUENTIAL], 3 * scale.reclaim_bytes);
    let begin = Instant::now();
    for offset in (0..bytes).step_by(SEQUENTIAL) {
        let failed = device.write_runs(&[WriteRun { offset, parts: &[&buf] }]);
        anyhow::ensure!(failed.is_empty(), "the device fails: {failed:?}");
    }
    Ok(Run { mb_per_second: bytes as f64 / 1e6 / begin.elapsed().as_secs_f64(), ..Run::default() })
}

fn volume(scale: &Scale, policy: ReclaimPolicy) -> anyhow::Result<BenchVolume> {
    let image = scale.image();
    make(&image, &layout(IMAGE_BYTES, LOG_BYTES))?;
    let device: Arc<dyn Device> = Arc::new(RateDevice::new(file_device(&image)?, DEVICE_BYTES_PER_SECOND));
    let mut options = Options { memory: Some(MemoryBudget::new(scale.reclaim_bytes)), ..Options::default() };
    options.contents.dirty = Some(DirtyLimit::Percent(40));
    options.contents.reclaim = policy;
    BenchVolume::on(device, options)
}

/// Ends a run: syncs, and takes the statistics.
fn end(volume: BenchVolume, begin: Instant, bytes: u64, mut micros: Vec<u32>) -> anyhow::Result<Run> {
    volume.sync()?;
    let seconds = begin.elapsed().as_secs_f64();
    let statistics = volume.volume().context("a volume of Xebec")?.statistics();
    volume.unmount()?;
    micros.sort_unstable();
    let percentile = |thousandths: usize| {
        let at = (micros.len() * thousandths / 1000).min(micros.len().saturating_sub(1));
        micros.get(at).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    };
    Ok(Run {
        mb_per_second: bytes as f64 / 1e6 / seconds,
        reclaimed: statistics.contents.written_by_reclaim as f64 / f64::from(1 << 20),
        p50: percentile(500),
        p99: percentile(990),
        p999: percentile(999),
    })
}

/// Writes pieces, and returns how long each took in microseconds.
fn write_pieces(
    file: &crate::bench_volume::BenchFile<'_>,
    offsets: impl Iterator<Item = u64>,
) -> anyhow::Result<Vec<u32>> {
    let piece = [7; PIECE];
    offsets
        .map(|offset| {
            let begin = Instant::now();
            file.write(&piece, offset)?;
            Ok(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX))
        })
        .collect()
}

fn files(scale: &Scale, threads: u32, policy: ReclaimPolicy) -> anyhow::Result<Run> {
    let volume = volume(scale, policy)?;
    let per_thread = (3 * scale.reclaim_bytes).div_ceil(scale.reclaim_file * u64::from(threads));
    let begin = Instant::now();
    let work = |thread: u32| {
        let dir = volume.mkdir(&format!("{thread}"))?;
        let mut micros = Vec::new();
        for file in 0..per_thread {
            let file = volume.file(&dir, &format!("{file}"), true)?;
            micros.extend(write_pieces(&file, (0..scale.reclaim_file).step_by(PIECE))?);
        }
        Ok(micros)
    };
    let micros = crate::engine::threads::on_threads(threads, &work)?.concat();
    end(volume, begin, per_thread * scale.reclaim_file * u64::from(threads), micros)
}

fn mixed(scale: &Scale, policy: ReclaimPolicy) -> anyhow::Result<Run> {
    let volume = volume(scale, policy)?;
    let bytes = 3 * scale.reclaim_bytes;
    let (small_bytes, mut memory) = (scale.reclaim_bytes / 16, vec![0u8; (scale.reclaim_bytes / 4) as usize]);
    let root = volume.root()?;
    let begin = Instant::now();
    let (large, small) = (volume.file(&root, "large", true)?, volume.file(&root, "small", true)?);
    let mut micros = write_pieces(&large, (0..bytes).step_by(PIECE))?;
    let mut page = [0; PIECE];
    for (turn, offset) in (0..bytes).step_by(2 * PIECE).enumerate() {
        micros.extend(write_pieces(&large, std::iter::once(offset))?);
        let at = (turn * PIECE) as u64 % small_bytes;
        micros.extend(write_pieces(&small, std::iter::once(at))?);
        small.read(&mut page, at)?;
        let to = turn * PIECE % (memory.len() - PIECE);
        memory.get_mut(to..to + PIECE).context("a page of memory")?.copy_from_slice(&page);
    }
    drop((large, small));
    end(volume, begin, bytes + bytes / 2 + small_bytes, micros)
}
