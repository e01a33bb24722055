//! Open and close, create and unlink, `stat`; each thread in a directory of its own, or all in one.

use crate::bench_volume::{BenchDir, BenchVolume, names};
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Run, Task, repeat};

/// Files of a directory.
const FILES: u32 = 100;

/// A call of a thread on a path from the root directory.
type Call = fn(&BenchVolume, &BenchDir, &str) -> anyhow::Result<()>;

/// Where the files of a thread are: whether it shares the directory with the other threads.
const PLACES: [(&str, bool); 2] = [("in different directories", false), ("in the same directory", true)];

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let calls: [(&str, Call); 2] = [
        ("open and close files", |volume, root, path| volume.open_close(root, path)),
        ("stat files", |volume, root, path| volume.exists(root, path).map(drop)),
    ];
    for (name, call) in calls {
        for (place, is_shared) in PLACES {
            let run = |volume: &BenchVolume, threads| existing(scale, volume, threads, is_shared, call);
            let task = Task::rate(scale, format!("{name} {place}"), "calls/s", &run);
            task.measure(scale, &scale.subjects, recorder)?;
        }
    }
    for (place, is_shared) in PLACES {
        let run = |volume: &BenchVolume, threads| created(scale, volume, threads, is_shared);
        let task = Task::rate(scale, format!("create and unlink files {place}"), "calls/s", &run);
        task.measure(scale, &scale.subjects, recorder)?;
    }
    Ok(())
}

fn existing(
    scale: &Scale,
    volume: &BenchVolume,
    threads: u32,
    is_shared: bool,
    call: Call,
) -> anyhow::Result<Run> {
    let names = names(FILES);
    let dir = |thread: u32| format!("files/d{}", if is_shared { 0 } else { thread });
    for thread in 0..if is_shared { 1 } else { threads } {
        let dir = volume.mkdir_all(&dir(thread))?;
        names.iter().try_for_each(|name| volume.create(&dir, name))?;
    }
    let prepare = |thread| {
        let root = volume.root()?;
        let paths: Vec<String> = names.iter().map(|name| format!("{}/{name}", dir(thread))).collect();
        // So that they are in memory.
        paths.iter().try_for_each(|path| call(volume, &root, path))?;
        Ok((root, paths))
    };
    let one = |(root, paths): &mut (BenchDir, Vec<String>), count: u64| {
        let path = paths.get(count as usize % paths.len()).map_or("", String::as_str);
        call(volume, root, path)
    };
    Ok(repeat(threads, scale.time(), &prepare, &one)?.into())
}

fn created(scale: &Scale, volume: &BenchVolume, threads: u32, is_shared: bool) -> anyhow::Result<Run> {
    let shared = volume.mkdir("shared")?;
    let prepare = |thread| {
        let own = if is_shared { None } else { Some(volume.mkdir(&format!("d{thread}"))?) };
        Ok((own, format!("file{thread}")))
    };
    let one = |(own, name): &mut (Option<_>, String), _| {
        let dir = own.as_ref().unwrap_or(&shared);
        volume.create(dir, name)?;
        volume.unlink(dir, name)
    };
    Ok(repeat(threads, scale.time(), &prepare, &one)?.into())
}
