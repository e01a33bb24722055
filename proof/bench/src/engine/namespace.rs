//! Creating and removing files, on one thread and on two.

use std::time::Instant;

use xebec::Options;

use super::Scale;
use crate::measure::{self, turns};
use crate::side::{Side, layout, names};
use crate::table::{Row, Table, Target};

/// Files of a directory.
const PER_DIRECTORY: u32 = 1000;
const IMAGE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 64 << 20;

/// Measures all of it.
pub fn run(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    table.add(beside(scale, "create empty files, 1,000 a directory, one thread", &create)?);
    table.add(beside(scale, "create and unlink empty files, one thread", &create_unlink)?);
    let name = "create empty files, two threads in different directories, through one thread";
    table.add(against_one(scale, name, &create)?);
    let name = "create and unlink, two threads in different directories, through one thread";
    table.add(against_one(scale, name, &create_unlink)?);
    let name = "create empty files, two threads: on one volume, through a volume for each";
    table.add(against_apart(scale, name, &create)?);
    let name = "create and unlink, two threads: on one volume, through a volume for each";
    table.add(against_apart(scale, name, &create_unlink)?);
    Ok(())
}

/// What one thread does on a side, with a name of its own; gives how many files it was.
type Task = dyn Fn(&Side, u32, u32) -> anyhow::Result<u32> + Sync;

fn beside(scale: &Scale, task: &str, work: &Task) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let (ours, other) = measure::beside(
        (scale.rounds, scale.alone),
        || rate(Side::xebec(&image, &layout, Options::default())?, scale, 1, work),
        || rate(Side::kernel(&image, &layout)?, scale, 1, work),
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

fn against_one(scale: &Scale, task: &str, work: &Task) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let side = || Side::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default());
    let (ours, other) =
        turns(scale.rounds, || rate(side()?, scale, 2, work), || rate(side()?, scale, 1, work))?;
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

/// What it costs that threads share a volume. Volumes share nothing but the machine, so that two of them go as fast
/// together as its cores, its caches and what the journals do in the background let any two threads go.
fn against_apart(scale: &Scale, task: &str, work: &Task) -> anyhow::Result<Row> {
    let open = |name: &str| {
        let image = scale.folder.join(name);
        Side::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default())
    };
    let apart = || {
        let sides = [open("engine.img")?, open("other.img")?];
        let begin = Instant::now();
        let files =
            on_threads(2, &|thread| work(if thread == 0 { &sides[0] } else { &sides[1] }, 0, scale.files))?;
        let seconds = begin.elapsed().as_secs_f64();
        sides.into_iter().try_for_each(Side::unmount)?;
        Ok(f64::from(files) / seconds)
    };
    let (ours, other) = turns(scale.rounds, || rate(open("engine.img")?, scale, 2, work), apart)?;
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

/// Files a second of all threads together. The volume is ended afterwards, which is not measured.
fn rate(side: Side, scale: &Scale, threads: u32, work: &Task) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let files = on_threads(threads, &|thread| work(&side, thread, scale.files))?;
    let seconds = begin.elapsed().as_secs_f64();
    side.unmount()?;
    Ok(f64::from(files) / seconds)
}

/// The files of all threads.
fn on_threads(threads: u32, work: &(dyn Fn(u32) -> anyhow::Result<u32> + Sync)) -> anyhow::Result<u32> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
            .sum()
    })
}

fn create(side: &Side, thread: u32, files: u32) -> anyhow::Result<u32> {
    let names = names(PER_DIRECTORY);
    for group in 0..files / PER_DIRECTORY {
        let dir = side.mkdir(&format!("t{thread}d{group}"))?;
        names.iter().try_for_each(|name| side.create(&dir, name))?;
    }
    Ok(files / PER_DIRECTORY * PER_DIRECTORY)
}

fn create_unlink(side: &Side, thread: u32, files: u32) -> anyhow::Result<u32> {
    let dir = side.mkdir(&format!("t{thread}"))?;
    for name in names(PER_DIRECTORY).iter().cycle().take(files as usize) {
        side.create(&dir, name)?;
        side.unlink(&dir, name)?;
    }
    Ok(files)
}
