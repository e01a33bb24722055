//! Single blocks all over an old file whose blocks are holes and data in turn, and the leaves of whose map are nearly
//! full: each write adds a record to the map, at worst each to another full leaf.

use model::Rng;

use super::contents::Work;
use super::{KnownFile, Stage, Went, rest};

/// Works on a file.
///
/// # Errors
/// In words.
pub fn work(stage: &Stage, file: &KnownFile, mut rng: Rng, steps: usize) -> Result<(), String> {
    let size = file.known().size.last();
    let work = Work::open(stage, file, size)?;
    for step in 0..steps {
        if stage.is_over() || work.lost.get() {
            return Ok(());
        }
        let at = |what: String| format!("step {step}: {what}");
        match rng.below(10) {
            0..=2 => work.sync().map_err(at)?,
            3 => work.compare().map_err(at)?,
            4 => each_place(stage, size, &mut rng, |at| work.punch(at, stage.block)).map_err(at)?,
            _ => each_place(stage, size, &mut rng, |at| work.write(at, stage.block)).map_err(at)?,
        }
        rest(&mut rng);
    }
    work.compare().map_err(|what| format!("at the end: {what}"))
}

/// Changes blocks at places with one distance, or at random ones, until one is refused.
fn each_place(
    stage: &Stage,
    size: u64,
    rng: &mut Rng,
    change: impl Fn(u64) -> Result<Went, String>,
) -> Result<(), String> {
    let blocks = (size / stage.block).max(1);
    let most = [4, 20, 120][rng.index(3)];
    let distance = [2, 30, 300, 0][rng.index(4)];
    let (mut at, step) = (rng.below(blocks), 1 + rng.below(distance.max(1)));
    for _ in 0..1 + rng.below(most) {
        if change(at * stage.block)? != Went::Well {
            break;
        }
        at = if distance == 0 { rng.below(blocks) } else { (at + step) % blocks };
    }
    Ok(())
}
