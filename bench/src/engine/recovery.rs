//! Replaying a full log.

use std::path::Path;
use std::time::Instant;

use report::record::Target;
use xebec::{NewFile, Options};

use super::Scale;
use crate::bench_volume::{self, BenchVolume, layout};
use crate::measure;
use crate::recorder::{Recorder, Row};

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let (image, copy) = (scale.folder.join("engine.img"), scale.folder.join("replay.img"));
    let BenchVolume::Xebec(volume) =
        BenchVolume::xebec(&image, &layout(4 << 30, scale.log_bytes), Options::default())?
    else {
        anyhow::bail!("not a volume of Xebec")
    };
    // Until the log has wrapped around.
    let mut files = 0u32;
    while volume.statistics().journal.bytes < scale.log_bytes * 2 {
        let dir = volume.create(volume.root(), format!("d{files}").as_bytes(), &NewFile::directory())?;
        for _ in 0..1000 {
            volume.create(dir, format!("file{files:08}").as_bytes(), &NewFile::regular())?;
            files += 1;
        }
    }
    volume.sync()?;
    volume.shut_down();
    drop(volume);
    let timed = |open: fn(&Path) -> anyhow::Result<BenchVolume>| {
        bench_volume::copy(&image, &copy)?;
        let begin = Instant::now();
        let volume = open(&copy)?;
        let seconds = begin.elapsed().as_secs_f64();
        volume.unmount()?;
        Ok(seconds)
    };
    let (ours, other) = measure::compare(
        table,
        (scale.rounds, scale.alone),
        || timed(|copy| BenchVolume::open(copy, Options::default())),
        || timed(BenchVolume::mount),
    )?;
    std::fs::remove_file(copy)?;
    table.add(Row {
        task: format!("recover a full log of {} MiB", scale.log_bytes >> 20),
        unit: "s",
        ours_is: "Xebec, opening the volume",
        other_is: "the kernel's XFS on a loop mount",
        ours,
        other,
        target: Some(Target::AtMost(1.0)),
    });
    Ok(())
}
