//! Files without names (`O_TMPFILE`), made and closed in a storm.

use crate::bench_volume::BenchVolume;
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
    Task::rate(scale, "make and close files without names", "files/s", &run).measure(
        scale,
        &scale.subjects,
        recorder,
    )
}
