//! Small pieces of a file that is in memory, at places chosen by chance.

use std::time::Instant;

use base::random::Random;
use xebec::Options;

use super::{Scale, beside};
use crate::side::Side;
use crate::table::Table;

const PIECE: usize = 4096;

/// Measures it.
pub fn run(scale: &Scale, table: &mut Table) -> anyhow::Result<()> {
    let task = format!("read 4 KiB of {} MiB in memory, anywhere", scale.cached_bytes >> 20);
    let work = |side| one(scale, side);
    table.add(beside(scale, (&task, "reads/s"), Some(3.0), &Options::default(), &work)?);
    Ok(())
}

fn one(scale: &Scale, side: Side) -> anyhow::Result<f64> {
    let rate = {
        let file = side.file(&side.root()?, "cached", true)?;
        let mut piece = vec![7; PIECE];
        for at in (0..scale.cached_bytes).step_by(PIECE) {
            file.write(&piece, at)?;
        }
        file.sync()?;
        let places: Vec<u64> = {
            let random = Random::seeded(1);
            let pieces = scale.cached_bytes / PIECE as u64;
            (0..scale.reads).map(|_| random.next_u64() % pieces * PIECE as u64).collect()
        };
        let begin = Instant::now();
        for at in places {
            file.read(&mut piece, at)?;
        }
        f64::from(scale.reads) / begin.elapsed().as_secs_f64()
    };
    side.unmount()?;
    Ok(rate)
}
