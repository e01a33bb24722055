//! A large file, written and read from its begin to its end.

use std::time::Instant;

use xebec::Options;

use super::{KERNELS, OURS, Scale, kernels, ours};
use crate::measure;
use crate::side::Side;
use crate::table::{Row, Table, Target};

const PIECE: usize = 1 << 20;
const NAME: &str = "large";

/// What one turn took.
struct Rates {
    write: f64,
    read: f64,
}

/// Measures both.
pub fn run(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let image = scale.image();
    let (first, second) = measure::beside(
        (scale.rounds, scale.alone),
        || one(scale, ours(&image, Options::default())?, &|| Side::open(&image, Options::default())),
        || one(scale, kernels(&image)?, &|| Side::mount(&image)),
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

/// Writes and syncs, ends the volume, and reads what a fresh one has. The image lies in the page cache.
fn one(scale: &Scale, side: Side, again: &dyn Fn() -> anyhow::Result<Side>) -> anyhow::Result<Rates> {
    let mib = (scale.stream_bytes >> 20) as f64;
    let mut piece: Vec<u8> = (0..PIECE).map(|at| (at % 251) as u8).collect();
    let begin = Instant::now();
    {
        let file = side.file(&side.root()?, NAME, true)?;
        for at in (0..scale.stream_bytes).step_by(PIECE) {
            file.write(&piece, at)?;
        }
        file.sync()?;
    }
    let write = mib / begin.elapsed().as_secs_f64();
    side.unmount()?;
    let side = again()?;
    let begin = Instant::now();
    {
        let file = side.file(&side.root()?, NAME, false)?;
        for at in (0..scale.stream_bytes).step_by(PIECE) {
            file.read(&mut piece, at)?;
        }
        file.sync()?;
    }
    let read = mib / begin.elapsed().as_secs_f64();
    side.unmount()?;
    Ok(Rates { write, read })
}
