//! Creating and removing files, by one thread and by two.

use std::time::Instant;

use xebec::Options;

use super::Scale;
use crate::bench_volume::{BenchVolume, layout, names};
use crate::measure::{self, alternate};
use crate::table::{Row, Table, Target};

/// Files per directory.
const PER_DIRECTORY: u32 = 1000;
const IMAGE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 64 << 20;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    table.add(compare(scale, "create empty files, 1,000 a directory, one thread", &create)?);
    table.add(compare(scale, "create and unlink empty files, one thread", &create_unlink)?);
    let name = "create empty files, two threads in different directories, divided by one thread";
    table.add(against_one(scale, name, &create)?);
    let name = "create and unlink, two threads in different directories, divided by one thread";
    table.add(against_one(scale, name, &create_unlink)?);
    let name = "create empty files, two threads: on one volume, divided by a volume each";
    table.add(against_apart(scale, name, &create)?);
    let name = "create and unlink, two threads: on one volume, divided by a volume each";
    table.add(against_apart(scale, name, &create_unlink)?);
    Ok(())
}

/// The work of one thread with a number of its own; returns the number of files.
type TimedWork = dyn Fn(&BenchVolume, u32, u32) -> anyhow::Result<u32> + Sync;

fn compare(scale: &Scale, task: &str, work: &TimedWork) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let (ours, other) = measure::compare(
        (scale.rounds, scale.alone),
        || rate(BenchVolume::xebec(&image, &layout, Options::default())?, scale, 1, work),
        || rate(BenchVolume::kernel(&image, &layout)?, scale, 1, work),
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

fn against_one(scale: &Scale, task: &str, work: &TimedWork) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let fresh = || BenchVolume::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default());
    let (ours, other) =
        alternate(scale.rounds, || rate(fresh()?, scale, 2, work), || rate(fresh()?, scale, 1, work))?;
    Ok(Row {
        task: task.into(),
        unit: "files/s",
        ours_is: "two threads",
        other_is: "one thread",
        ours,
        other,
        target: Some(Target::RatioAtLeast(1.9)),
    })
}

/// Measures the cost of sharing a volume. Two volumes share only the machine, so their rate is the maximum for two
/// threads with the journals' background work.
fn against_apart(scale: &Scale, task: &str, work: &TimedWork) -> anyhow::Result<Row> {
    let open = |name: &str| {
        let image = scale.folder.join(name);
        BenchVolume::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default())
    };
    let apart = || {
        let volumes = [open("engine.img")?, open("other.img")?];
        let begin = Instant::now();
        let files = on_threads(2, &|thread| {
            work(if thread == 0 { &volumes[0] } else { &volumes[1] }, 0, scale.files)
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        volumes.into_iter().try_for_each(BenchVolume::unmount)?;
        Ok(f64::from(files) / seconds)
    };
    let (ours, other) = alternate(scale.rounds, || rate(open("engine.img")?, scale, 2, work), apart)?;
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
    let files = on_threads(threads, &|thread| work(&volume, thread, scale.files))?;
    let seconds = begin.elapsed().as_secs_f64();
    volume.unmount()?;
    Ok(f64::from(files) / seconds)
}

/// Runs the work on threads and returns the number of all files.
fn on_threads(threads: u32, work: &(dyn Fn(u32) -> anyhow::Result<u32> + Sync)) -> anyhow::Result<u32> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
            .sum()
    })
}

fn create(volume: &BenchVolume, thread: u32, files: u32) -> anyhow::Result<u32> {
    let names = names(PER_DIRECTORY);
    for group in 0..files / PER_DIRECTORY {
        let dir = volume.mkdir(&format!("t{thread}d{group}"))?;
        names.iter().try_for_each(|name| volume.create(&dir, name))?;
    }
    Ok(files / PER_DIRECTORY * PER_DIRECTORY)
}

fn create_unlink(volume: &BenchVolume, thread: u32, files: u32) -> anyhow::Result<u32> {
    let dir = volume.mkdir(&format!("t{thread}"))?;
    for name in names(PER_DIRECTORY).iter().cycle().take(files as usize) {
        volume.create(&dir, name)?;
        volume.unlink(&dir, name)?;
    }
    Ok(files)
}
