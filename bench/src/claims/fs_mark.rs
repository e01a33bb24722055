//! The workload of the program `fs_mark`: each thread creates, writes and closes files of one size, in a directory of
//! its own.

use std::time::Instant;

use crate::bench_volume::{BenchVolume, names};
use crate::engine::threads::on_threads;
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Run, Task, histogram};

/// Bytes of one write.
const PIECE: usize = 64 << 10;

/// Files of one size.
#[derive(Clone, Copy)]
struct Files {
    /// Bytes of a file.
    size: u64,
    /// Files of all threads together.
    count: u32,
    /// Whether each is synced before it is closed.
    sync: bool,
}

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let small = scale.pick(80_000, 16_000, 400);
    let kinds = [
        ("empty files", Files { size: 0, count: small, sync: false }),
        ("files of 4 KiB", Files { size: 4096, count: small, sync: false }),
        ("files of 4 KiB, each synced", Files { size: 4096, count: small / 40, sync: true }),
        ("files of 10 MiB", Files { size: 10 << 20, count: scale.pick(128, 32, 2), sync: false }),
    ];
    for (name, files) in kinds {
        let name = format!("{} {name}, until they are on disk and the volume is unmounted", files.count);
        let run = |volume: &BenchVolume, threads| write(volume, threads, files);
        let task = Task { until_unmounted: true, ..Task::rate(scale, name, "files/s", &run) };
        task.measure(scale, &scale.subjects, recorder)?;
    }
    Ok(())
}

fn write(volume: &BenchVolume, threads: u32, files: Files) -> anyhow::Result<Run> {
    let bytes = vec![7; PIECE.min(files.size as usize)];
    let each = (files.count / threads).max(1);
    let calls = on_threads(threads, &|thread| {
        let dir = volume.mkdir(&format!("t{thread}"))?;
        let mut calls = histogram()?;
        for name in names(each) {
            let begin = Instant::now();
            let file = volume.file(&dir, &name, true)?;
            for offset in (0..files.size).step_by(PIECE) {
                file.write(&bytes, offset)?;
            }
            if files.sync {
                file.sync()?;
            }
            drop(file);
            calls.saturating_record(begin.elapsed().as_nanos() as u64);
        }
        Ok(calls)
    })?;
    // A FUSE server is not told of syncfs(2), but writes everything when it is unmounted.
    volume.sync()?;
    let value = f64::from(each * threads);
    let mut all = histogram()?;
    calls.iter().try_for_each(|calls| all.add(calls))?;
    Ok(Run { value, calls: Some(all) })
}
