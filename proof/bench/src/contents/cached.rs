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
    // Of what no processor's cache holds, most of a read on either side is the copy.
    for (bytes, least) in [(scale.cached_bytes / 8, Some(3.0)), (scale.cached_bytes, None)] {
        let task = format!("read 4 KiB of {} KiB in memory, anywhere", bytes >> 10);
        let work = |side| one(scale, side, bytes);
        table.add(beside(scale, (&task, "reads/s"), least, &Options::default(), &work)?);
    }
    Ok(())
}

fn one(scale: &Scale, side: Side, bytes: u64) -> anyhow::Result<f64> {
    let rate = {
        let file = side.file(&side.root()?, "cached", true)?;
        let mut piece = vec![7; PIECE];
        for at in (0..bytes).step_by(PIECE) {
            file.write(&piece, at)?;
        }
        file.sync()?;
        let places: Vec<u64> = {
            let random = Random::seeded(1);
            let pieces = bytes / PIECE as u64;
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
