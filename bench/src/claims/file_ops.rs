//! Open and close, create and unlink, `stat`; each thread in a directory of its own, or all in one.

use crate::bench_volume::{BenchVolume, names};
use crate::record::Target;
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Run, Task, repeat};

/// Files of a directory.
const FILES: u32 = 100;

/// A call of a thread on the file with a number, in the directory with a path.
type Call = fn(&BenchVolume, &str, &str) -> anyhow::Result<()>;

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let calls: [(&str, Call); 2] = [
        ("open and close files", |volume, dir, name| {
            volume.open_close(&volume.root()?, &format!("{dir}/{name}"))
        }),
        ("stat files", |volume, dir, name| {
            volume.exists(&volume.root()?, &format!("{dir}/{name}")).map(drop)
        }),
    ];
    for (name, call) in calls {
        for (place, is_shared) in [("in different directories", false), ("in the same directory", true)] {
            let run = |volume: &BenchVolume, threads| existing(scale, volume, threads, is_shared, call);
            measure(scale, recorder, format!("{name} {place}"), &run)?;
        }
    }
    for (place, is_shared) in [("in different directories", false), ("in the same directory", true)] {
        let run = |volume: &BenchVolume, threads| created(scale, volume, threads, is_shared);
        measure(scale, recorder, format!("create and unlink files {place}"), &run)?;
    }
    Ok(())
}

fn measure(
    scale: &Scale,
    recorder: &mut Recorder<'_>,
    name: String,
    run: &dyn Fn(&BenchVolume, u32) -> anyhow::Result<Run>,
) -> anyhow::Result<()> {
    let target = Some(Target::RatioAtLeast(1.0));
    let task = Task {
        name,
        unit: "calls/s",
        less_is_better: false,
        threads: &scale.threads,
        target,
        until_unmounted: false,
        run,
    };
    task.measure(scale, &scale.subjects, recorder)
}

fn existing(
    scale: &Scale,
    volume: &BenchVolume,
    threads: u32,
    is_shared: bool,
    call: Call,
) -> anyhow::Result<Run> {
    let names = names(FILES);
    let path = |thread: u32| format!("files/d{}", if is_shared { 0 } else { thread });
    for thread in 0..if is_shared { 1 } else { threads } {
        let dir = volume.mkdir_all(&path(thread))?;
        names.iter().try_for_each(|name| volume.create(&dir, name))?;
    }
    let prepare = |thread| {
        let path = path(thread);
        names.iter().try_for_each(|name| call(volume, &path, name))?;
        Ok(path)
    };
    let one = |path: &mut String, count: u64| {
        let name = names.get(count as usize % names.len()).map_or("", String::as_str);
        call(volume, path, name)
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
