//! Sequential write and read of a large file.

use std::time::Instant;

use report::record::Target;
use xebec::Options;

use super::{KERNELS, OURS, Scale, kernels, ours};
use crate::bench_volume::BenchVolume;
use crate::measure;
use crate::recorder::{Recorder, Row};

const PIECE: usize = 1 << 20;
const NAME: &str = "large";

/// Rates of one run, in MiB/s.
struct Rates {
    write: f64,
    read: f64,
}

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = scale.image();
    let (first, second) = measure::compare(
        table,
        (scale.rounds, scale.alone),
        || one(scale, ours(&image, Options::default())?, &|| BenchVolume::open(&image, Options::default())),
        || one(scale, kernels(&image)?, &|| BenchVolume::mount(&image)),
    )?;
    let mut add = |task: &str, of: fn(&Rates) -> f64| {
        table.add(Row {
            task: format!("{task} {} MiB, 1 MiB at a time", scale.stream_bytes >> 20),
            unit: "MiB/s",
            ours_is: OURS,
            other_is: KERNELS,
            ours: first.iter().map(of).collect(),
            other: second.iter().map(of).collect(),
            target: Some(Target::RatioAtLeast(0.95)),
        });
    };
    add("write and sync", |rates| rates.write);
    add("read", |rates| rates.read);
    Ok(())
}

/// Writes and syncs, unmounts the volume, opens it again, and reads. The image is in the page cache.
fn one(
    scale: &Scale,
    volume: BenchVolume,
    reopen: &dyn Fn() -> anyhow::Result<BenchVolume>,
) -> anyhow::Result<Rates> {
    let mib = (scale.stream_bytes >> 20) as f64;
    let begin = Instant::now();
    write(scale, &volume)?;
    let write = mib / begin.elapsed().as_secs_f64();
    volume.unmount()?;
    let volume = reopen()?;
    let mut piece = vec![0; PIECE];
    let begin = Instant::now();
    {
        let file = volume.file(&volume.root()?, NAME, false)?;
        for offset in (0..scale.stream_bytes).step_by(PIECE) {
            file.read(&mut piece, offset)?;
        }
        file.sync()?;
    }
    let read = mib / begin.elapsed().as_secs_f64();
    volume.unmount()?;
    Ok(Rates { write, read })
}

/// Writes and syncs the file.
pub fn write(scale: &Scale, volume: &BenchVolume) -> anyhow::Result<()> {
    let piece: Vec<u8> = (0..PIECE).map(|at| (at % 251) as u8).collect();
    let file = volume.file(&volume.root()?, NAME, true)?;
    (0..scale.stream_bytes).step_by(PIECE).try_for_each(|offset| file.write(&piece, offset))?;
    file.sync()
}
