//! Files without names (`O_TMPFILE`), made and closed in a storm.

use crate::bench_volume::BenchVolume;
use crate::record::Target;
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::tasks::{Task, repeat};

/// Runs the measurement.
///
/// # Errors
/// Xebec failed.
pub fn run(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let run = |volume: &BenchVolume, threads| {
        let dir = volume.mkdir("tmp")?;
        Ok(repeat(threads, scale.time(), &|_| Ok(()), &|(), _| volume.tmpfile_close(&dir))?.into())
    };
    let task = Task {
        name: "make and close files without names".into(),
        unit: "files/s",
        less_is_better: false,
        threads: &scale.threads,
        target: Some(Target::RatioAtLeast(1.0)),
        until_unmounted: false,
        run: &run,
    };
    task.measure(scale, &scale.subjects, recorder)
}
