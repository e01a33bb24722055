//! Random reads of a cached file.

use std::time::Instant;

use base::random::Random;
use xebec::Options;

use super::{Scale, compare};
use crate::bench_volume::BenchVolume;
use crate::recorder::Recorder;

const PIECE: usize = 4096;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    // Without CPU cache hits, the copy dominates a read on both sides.
    for (bytes, ratio_min) in [(scale.cached_bytes / 8, Some(3.0)), (scale.cached_bytes, None)] {
        let task = format!("read 4 KiB of {} KiB in memory, anywhere", bytes >> 10);
        let work = |volume| one(scale, volume, bytes);
        table.add(compare(scale, table, (&task, "reads/s"), ratio_min, &Options::default(), &work)?);
    }
    Ok(())
}

fn one(scale: &Scale, volume: BenchVolume, bytes: u64) -> anyhow::Result<f64> {
    let rate = {
        let file = volume.file(&volume.root()?, "cached", true)?;
        let mut piece = vec![7; PIECE];
        for offset in (0..bytes).step_by(PIECE) {
            file.write(&piece, offset)?;
        }
        file.sync()?;
        let offsets: Vec<u64> = {
            let random = Random::seeded(1);
            let pieces = bytes / PIECE as u64;
            (0..scale.reads).map(|_| random.next_u64() % pieces * PIECE as u64).collect()
        };
        let begin = Instant::now();
        for offset in offsets {
            file.read(&mut piece, offset)?;
        }
        f64::from(scale.reads) / begin.elapsed().as_secs_f64()
    };
    volume.unmount()?;
    Ok(rate)
}
