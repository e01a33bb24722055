//! Files without names (`O_TMPFILE`) that many threads create and close.

use std::time::Instant;

use xebec::Options;

use super::Scale;
use super::threads::{add_scaling, on_threads};
use crate::bench_volume::{BenchVolume, layout};
use crate::measure::compare;
use crate::recorder::{Recorder, Row};

const IMAGE_BYTES: u64 = 2 << 30;
const LOG_BYTES: u64 = 64 << 20;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let ours =
        |threads| rate(BenchVolume::xebec(&image, &layout, Options::default())?, scale.files / 4, threads);
    for threads in std::iter::once(1).chain(scale.threads.iter().copied().filter(|threads| *threads > 1)) {
        let (ours, other) = compare(
            (scale.rounds, scale.alone),
            || ours(threads),
            || rate(BenchVolume::kernel(&image, &layout)?, scale.files / 4, threads),
        )?;
        table.add(Row {
            task: format!("create and close files without names, threads: {threads}"),
            unit: "files/s",
            ours_is: "Xebec, as a library",
            other_is: "the kernel's XFS on a loop mount",
            ours,
            other,
            target: None,
        });
    }
    add_scaling(scale, table, ("create and close files without names", "files/s"), &ours)
}

/// Files per second of threads that use one directory, as for temporary files. Both sides free inodes in the
/// background; what they do after the last call is not measured.
fn rate(volume: BenchVolume, files: u32, threads: u32) -> anyhow::Result<f64> {
    let dir = volume.mkdir("tmp")?;
    let begin = Instant::now();
    on_threads(threads, &|_| (0..files).try_for_each(|_| volume.tmpfile_close(&dir)))?;
    let rate = f64::from(files) * f64::from(threads) / begin.elapsed().as_secs_f64();
    drop(dir);
    volume.unmount()?;
    Ok(rate)
}
