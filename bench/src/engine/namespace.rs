//! Creating and removing files, by one thread and by several.

use std::time::Instant;

use report::record::Target;
use xebec::Options;

use super::Scale;
use super::threads::{add_scaling, on_threads};
use crate::bench_volume::{BenchVolume, layout, names};
use crate::measure::{self, alternate};
use crate::recorder::{Recorder, Row};

/// Files per directory.
const PER_DIRECTORY: u32 = 1000;
const IMAGE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 64 << 20;
/// So that many threads do not wait for space in the log.
const SCALING_LOG_BYTES: u64 = 256 << 20;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let task = "create empty files, 1,000 a directory, one thread";
    table.add(compare(scale, table, task, &|volume| rate(volume, scale, 1, &create))?);
    let task = "unlink empty files, 1,000 a directory, one thread";
    table.add(compare(scale, table, task, &|volume| unlink_rate(volume, scale))?);
    let task = "create and unlink empty files, one thread";
    table.add(compare(scale, table, task, &|volume| rate(volume, scale, 1, &create_unlink))?);
    table.add(against_both_alone(scale, table)?);
    let image = scale.folder.join("engine.img");
    // An AG for each thread, as `mkfs.xfs -d concurrency` has it: threads that create files in one AG wait for its AGI.
    let most = scale.threads.iter().copied().max().unwrap_or(1);
    let layout =
        mkfs::Options { ag_count: Some(most.max(4).into()), ..layout(IMAGE_BYTES, SCALING_LOG_BYTES) };
    let fresh = || BenchVolume::xebec(&image, &layout, Options::default());
    let create_rate = |threads| rate(fresh()?, scale, threads, &create);
    let task = "create empty files in different directories";
    add_scaling(scale, table, (task, "files/s"), &create_rate)?;
    let create_unlink_rate = |threads| rate(fresh()?, scale, threads, &create_unlink);
    let task = "create and unlink in different directories";
    add_scaling(scale, table, (task, "files/s"), &create_unlink_rate)?;
    let name = "create empty files, two threads: on one volume, divided by a volume each";
    table.add(against_apart(scale, table, name, &create)?);
    let name = "create and unlink, two threads: on one volume, divided by a volume each";
    table.add(against_apart(scale, table, name, &create_unlink)?);
    Ok(())
}

/// The work of one thread with a number of its own; returns the number of files.
type TimedWork = dyn Fn(&BenchVolume, u32, u32) -> anyhow::Result<u32> + Sync;

/// Compares the files per second that `rate` measures on a fresh volume.
fn compare(
    scale: &Scale,
    table: &Recorder<'_>,
    task: &str,
    rate: &dyn Fn(BenchVolume) -> anyhow::Result<f64>,
) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let (ours, other) = measure::compare(
        table,
        (scale.rounds, scale.alone),
        || rate(BenchVolume::xebec(&image, &layout, Options::default())?),
        || rate(BenchVolume::kernel(&image, &layout)?),
    )?;
    Ok(Row {
        task: task.into(),
        unit: "files/s",
        ours_is: "Xebec, as a library",
        other_is: "the kernel's XFS on a loop mount",
        ours,
        other,
        target: Some(Target::RatioAtLeast(5.0)),
    })
}

/// Compares creating and unlinking each file in turn with creating all files, and then unlinking all. Each runs on a
/// volume of its own.
fn against_both_alone(scale: &Scale, table: &Recorder<'_>) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let fresh = || BenchVolume::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default());
    let in_turn = || Ok(1e9 / rate(fresh()?, scale, 1, &create_unlink)?);
    let alone = || {
        let volume = fresh()?;
        let begin = Instant::now();
        let files = create(&volume, 0, scale.files)?;
        unlink(&volume, 0, scale.files)?;
        let nanoseconds = begin.elapsed().as_nanos() as f64;
        volume.unmount()?;
        Ok(nanoseconds / f64::from(files))
    };
    let (ours, other) = alternate(table, scale.rounds, in_turn, alone)?;
    Ok(Row {
        task: "create and unlink each file in turn; create all, then unlink all".into(),
        unit: "ns",
        ours_is: "in turn, per file",
        other_is: "the sum of both, per file",
        ours,
        other,
        target: Some(Target::RatioAtMost(1.0)),
    })
}

/// Measures the cost of sharing a volume. Two volumes share only the machine, so their rate is the maximum for two
/// threads with the journals' background work.
fn against_apart(scale: &Scale, table: &Recorder<'_>, task: &str, work: &TimedWork) -> anyhow::Result<Row> {
    let open = |name: &str| {
        let image = scale.folder.join(name);
        BenchVolume::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default())
    };
    let apart = || {
        let volumes = [open("engine.img")?, open("other.img")?];
        let begin = Instant::now();
        let files: u32 = on_threads(2, &|thread| {
            work(if thread == 0 { &volumes[0] } else { &volumes[1] }, 0, scale.files)
        })?
        .into_iter()
        .sum();
        let seconds = begin.elapsed().as_secs_f64();
        volumes.into_iter().try_for_each(BenchVolume::unmount)?;
        Ok(f64::from(files) / seconds)
    };
    let (ours, other) = alternate(table, scale.rounds, || rate(open("engine.img")?, scale, 2, work), apart)?;
    std::fs::remove_file(scale.folder.join("other.img"))?;
    Ok(Row {
        task: task.into(),
        unit: "files/s",
        ours_is: "two threads on one volume",
        other_is: "two threads, each on a volume of its own",
        ours,
        other,
        target: None,
    })
}

/// Files per second of all threads together. Unmounting is not measured.
fn rate(volume: BenchVolume, scale: &Scale, threads: u32, work: &TimedWork) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let files: u32 = on_threads(threads, &|thread| work(&volume, thread, scale.files))?.into_iter().sum();
    let seconds = begin.elapsed().as_secs_f64();
    volume.unmount()?;
    Ok(f64::from(files) / seconds)
}

/// Unlinked files per second. Creating them is not measured.
fn unlink_rate(volume: BenchVolume, scale: &Scale) -> anyhow::Result<f64> {
    let files = create(&volume, 0, scale.files)?;
    let begin = Instant::now();
    unlink(&volume, 0, files)?;
    let seconds = begin.elapsed().as_secs_f64();
    volume.unmount()?;
    Ok(f64::from(files) / seconds)
}

fn create(volume: &BenchVolume, thread: u32, files: u32) -> anyhow::Result<u32> {
    let names = names(PER_DIRECTORY);
    for group in 0..files / PER_DIRECTORY {
        let dir = volume.mkdir(&format!("t{thread}d{group}"))?;
        names.iter().try_for_each(|name| volume.create(&dir, name))?;
    }
    Ok(files / PER_DIRECTORY * PER_DIRECTORY)
}

/// Unlinks the files that [`create`] made.
fn unlink(volume: &BenchVolume, thread: u32, files: u32) -> anyhow::Result<()> {
    let names = names(PER_DIRECTORY);
    for group in 0..files / PER_DIRECTORY {
        let dir = volume.dir(&format!("t{thread}d{group}"))?;
        names.iter().try_for_each(|name| volume.unlink(&dir, name))?;
    }
    Ok(())
}

fn create_unlink(volume: &BenchVolume, thread: u32, files: u32) -> anyhow::Result<u32> {
    let dir = volume.mkdir(&format!("t{thread}"))?;
    for name in names(PER_DIRECTORY).iter().cycle().take(files as usize) {
        volume.create(&dir, name)?;
        volume.unlink(&dir, name)?;
    }
    Ok(files)
}
