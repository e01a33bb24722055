//! Creating and removing files, on one thread and on two.

use std::time::Instant;

use xebec::Options;

use super::Scale;
use crate::measure::turns;
use crate::side::{Side, layout};
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
    Ok(())
}

/// What one thread does on a side, with a name of its own; gives how many files it was.
type Task = dyn Fn(&Side, u32, u32) -> anyhow::Result<u32> + Sync;

fn beside(scale: &Scale, task: &str, work: &Task) -> anyhow::Result<Row> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let (ours, other) = turns(
        scale.rounds,
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

/// Files a second of all threads together. The volume is ended afterwards, which is not measured.
fn rate(side: Side, scale: &Scale, threads: u32, work: &Task) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let files: u32 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let side = &side;
                    move || work(side, thread, scale.files)
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
            .sum::<anyhow::Result<u32>>()
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    side.unmount()?;
    Ok(f64::from(files) / seconds)
}

fn create(side: &Side, thread: u32, files: u32) -> anyhow::Result<u32> {
    for group in 0..files / PER_DIRECTORY {
        let dir = side.mkdir(&format!("t{thread}d{group}"))?;
        for file in 0..PER_DIRECTORY {
            side.create(&dir, &format!("file{file:06}"))?;
        }
    }
    Ok(files / PER_DIRECTORY * PER_DIRECTORY)
}

fn create_unlink(side: &Side, thread: u32, files: u32) -> anyhow::Result<u32> {
    let dir = side.mkdir(&format!("t{thread}"))?;
    for file in 0..files {
        let name = format!("file{file:06}");
        side.create(&dir, &name)?;
        side.unlink(&dir, &name)?;
    }
    Ok(files)
}
