//! What the finobt costs where it is of no use: files created on an empty volume.

use std::time::Instant;

use crate::bench_volume::{BenchVolume, names};
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::subject::{Subject, Without};
use crate::tasks::{Run, Task};

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn cost(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let files = scale.pick(1_000_000, 100_000, 2_000);
    let run = |volume: &BenchVolume, _| create(volume, files);
    let name = format!("create {files} files on an empty volume");
    let task = Task::time(name, "s", &[1], 1.0, &run);
    let mut subjects = vec![Subject::LIBRARY, Subject::Library(Without::Finobt)];
    subjects.extend(scale.subjects.contains(&Subject::Kernel).then_some(Subject::Kernel));
    task.measure(scale, &subjects, recorder)
}

fn create(volume: &BenchVolume, files: u32) -> anyhow::Result<Run> {
    let names = names(1000);
    let begin = Instant::now();
    for group in 0..files / 1000 {
        let dir = volume.mkdir(&format!("d{group}"))?;
        names.iter().try_for_each(|name| volume.create(&dir, name))?;
    }
    Ok(begin.elapsed().as_secs_f64().into())
}
