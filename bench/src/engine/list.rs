//! Listing a large directory, with the metadata of each file.

use std::time::Instant;

use anyhow::ensure;
use report::record::Target;
use xebec::Options;

use super::Scale;
use crate::bench_volume::{BenchVolume, layout, names};
use crate::measure::compare;
use crate::recorder::{Recorder, Row};

const IMAGE_BYTES: u64 = 2 << 30;
const LOG_BYTES: u64 = 64 << 20;
/// Listings per run.
const LISTINGS: u32 = 5;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = scale.folder.join("engine.img");
    let layout = layout(IMAGE_BYTES, LOG_BYTES);
    let files = scale.files / 2;
    let (ours, other) = compare(
        table,
        (scale.rounds, scale.alone),
        || nanoseconds(BenchVolume::xebec(&image, &layout, Options::default())?, files),
        || nanoseconds(BenchVolume::kernel(&image, &layout)?, files),
    )?;
    table.add(Row {
        task: format!("list {files} names with the metadata of each, per name"),
        unit: "ns",
        ours_is: "Xebec, as a library",
        other_is: "the kernel's XFS on a loop mount",
        ours,
        other,
        target: (!scale.alone).then_some(Target::RatioAtMost(0.2)),
    });
    Ok(())
}

/// Nanoseconds for each name, on a fresh volume.
fn nanoseconds(volume: BenchVolume, files: u32) -> anyhow::Result<f64> {
    let dir = volume.mkdir("large")?;
    names(files).iter().try_for_each(|name| volume.create(&dir, name))?;
    let list = || {
        let (listed, bytes) = volume.list(&dir)?;
        ensure!(listed == u64::from(files) && bytes == 0, "{listed} files with {bytes} bytes");
        anyhow::Ok(())
    };
    list()?;
    let begin = Instant::now();
    (0..LISTINGS).try_for_each(|_| list())?;
    let nanoseconds = begin.elapsed().as_nanos() as f64 / f64::from(LISTINGS * files);
    drop(dir);
    volume.unmount()?;
    Ok(nanoseconds)
}
