//! Setting extended attributes of open files.

use std::time::{Duration, Instant};

use xebec::Options;

use super::{Scale, compare};
use crate::bench_volume::BenchVolume;
use crate::recorder::Recorder;

/// Number of files that are open at the same time.
const GROUP: u32 = 1000;
const VALUES: [[u8; 32]; 2] = [[1; 32], [2; 32]];

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let work = |volume| one(scale, volume);
    let task = ("set an attribute of 32 bytes, each twice", "calls/s");
    table.add(compare(scale, table, task, Some(4.0), &Options::default(), &work)?);
    Ok(())
}

fn one(scale: &Scale, volume: BenchVolume) -> anyhow::Result<f64> {
    let mut took = Duration::ZERO;
    for group in 0..scale.attributes {
        let dir = volume.mkdir(&format!("d{group}"))?;
        let files: Vec<_> = (0..GROUP)
            .map(|file| volume.file(&dir, &format!("file{file:06}"), true))
            .collect::<anyhow::Result<_>>()?;
        let begin = Instant::now();
        for value in VALUES {
            for file in &files {
                file.set_attribute("user.attribute", &value)?;
            }
        }
        took += begin.elapsed();
    }
    volume.unmount()?;
    Ok(f64::from(scale.attributes * GROUP * VALUES.len() as u32) / took.as_secs_f64())
}
