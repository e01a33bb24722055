//! Many syncs at once, beside many clean inodes in memory.

use std::time::Instant;

use crate::bench_volume::{BenchVolume, names};
use crate::engine::threads::on_threads;
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::subject::Subject;
use crate::tasks::{Run, Task};

const SYNCS: u32 = 32;
const PER_DIRECTORY: u32 = 5_000;

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let inodes = scale.pick(scale.inodes.min(1_000_000), 100_000, 1_000);
    let run = |volume: &BenchVolume, _| storm(volume, inodes);
    let name = format!("{SYNCS} threads write 4 KiB and sync, beside {inodes} clean inodes in memory");
    let task = Task::time(name, "ms", &[SYNCS], 1.0, &run);
    // A file system that the user named is not filled with so many files.
    let is_ours = |subject: &&Subject| !matches!(subject, Subject::Directory(_) | Subject::Mounted);
    let subjects: Vec<Subject> = scale.subjects.iter().filter(is_ours).cloned().collect();
    task.measure(scale, &subjects, recorder)
}

fn storm(volume: &BenchVolume, inodes: u32) -> anyhow::Result<Run> {
    let names = names(PER_DIRECTORY.min(inodes));
    for directory in 0..inodes / names.len() as u32 {
        let dir = volume.mkdir(&format!("d{directory}"))?;
        names.iter().try_for_each(|name| volume.create(&dir, name))?;
    }
    volume.sync()?;
    let dir = volume.mkdir("synced")?;
    let files = (0..SYNCS).map(|n| volume.file(&dir, &format!("synced{n}"), true));
    let files = files.collect::<anyhow::Result<Vec<_>>>()?;
    let begin = Instant::now();
    on_threads(SYNCS, &|thread| {
        if let Some(file) = files.get(thread as usize) {
            file.write(&[1; 4096], 0)?;
        }
        volume.sync()
    })?;
    Ok((begin.elapsed().as_secs_f64() * 1e3).into())
}
