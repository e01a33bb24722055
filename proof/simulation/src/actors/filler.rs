//! Fills the volume to the last block, and frees parts of it again.

use model::Rng;

use super::contents::FileWorker;
use super::{CallResult, RoundState, TrackedFile, pause};

/// Maximum number of sectors per step.
const STEP: u64 = 4096;

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(state: &RoundState, file: &TrackedFile, mut rng: Rng, steps: usize) -> Result<(), String> {
    let work = FileWorker::open(state, file, u64::MAX)?;
    for step in 0..steps {
        if state.is_over() || work.lost.get() {
            return Ok(());
        }
        let in_step = |message: String| format!("step {step}: {message}");
        match rng.below(8) {
            0 => work.sync().map_err(in_step)?,
            1 => work.compare().map_err(in_step)?,
            2 => drop(work.truncate(rng.below(work.size() + 1)).map_err(in_step)?),
            3 => free_blocks(state, &work, &mut rng).map_err(in_step)?,
            _ => fill(state, &work, &mut rng).map_err(in_step)?,
        }
        pause(&mut rng);
    }
    work.compare().map_err(|message| format!("at the end: {message}"))
}

/// Appends until a single block is refused.
fn fill(state: &RoundState, work: &FileWorker<'_>, rng: &mut Rng) -> Result<(), String> {
    let mut piece = [state.block, 8 * state.block, 128][rng.index(3)].max(state.block);
    let mut taken = 0;
    while taken < STEP {
        // After a short write the size may not be a multiple of the block size.
        let at = work.size().next_multiple_of(state.block);
        match work.write(at, piece)? {
            CallResult::Done => taken += piece,
            CallResult::Refused if piece > state.block => piece = state.block,
            CallResult::Refused | CallResult::Failed => break,
        }
    }
    Ok(())
}

/// Frees every other block of a range, which fragments free space.
fn free_blocks(state: &RoundState, work: &FileWorker<'_>, rng: &mut Rng) -> Result<(), String> {
    let blocks = work.size() / state.block;
    let first = rng.below(blocks + 1);
    for at in (first..blocks).step_by(2).take(1 + rng.index(100)) {
        if work.punch(at * state.block, state.block)? != CallResult::Done {
            break;
        }
    }
    Ok(())
}
