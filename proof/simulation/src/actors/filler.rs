//! Takes the space that is left, to the last block, and gives parts of it back.

use model::Rng;

use super::contents::Work;
use super::{KnownFile, Stage, Went, rest};

/// Sectors that one step takes at most.
const STEP: u64 = 4096;

/// Works on a file of its own.
///
/// # Errors
/// In words.
pub fn work(stage: &Stage, file: &KnownFile, mut rng: Rng, steps: usize) -> Result<(), String> {
    let work = Work::open(stage, file, u64::MAX)?;
    for step in 0..steps {
        if stage.is_over() || work.lost.get() {
            return Ok(());
        }
        let at = |what: String| format!("step {step}: {what}");
        match rng.below(8) {
            0 => work.sync().map_err(at)?,
            1 => work.compare().map_err(at)?,
            2 => drop(work.truncate(rng.below(work.size() + 1)).map_err(at)?),
            3 => give_back(stage, &work, &mut rng).map_err(at)?,
            _ => fill(stage, &work, &mut rng).map_err(at)?,
        }
        rest(&mut rng);
    }
    work.compare().map_err(|what| format!("at the end: {what}"))
}

/// Appends until a single block is refused.
fn fill(stage: &Stage, work: &Work<'_>, rng: &mut Rng) -> Result<(), String> {
    let mut piece = [stage.block, 8 * stage.block, 128][rng.index(3)].max(stage.block);
    let mut taken = 0;
    while taken < STEP {
        // A write that was cut short may have left an odd end.
        let at = work.size().next_multiple_of(stage.block);
        match work.write(at, piece)? {
            Went::Well => taken += piece,
            Went::Refused if piece > stage.block => piece = stage.block,
            Went::Refused | Went::Failed => break,
        }
    }
    Ok(())
}

/// Frees every other block of a range: free space is in more pieces then.
fn give_back(stage: &Stage, work: &Work<'_>, rng: &mut Rng) -> Result<(), String> {
    let blocks = work.size() / stage.block;
    let first = rng.below(blocks + 1);
    for at in (first..blocks).step_by(2).take(1 + rng.index(100)) {
        if work.punch(at * stage.block, stage.block)? != Went::Well {
            break;
        }
    }
    Ok(())
}
