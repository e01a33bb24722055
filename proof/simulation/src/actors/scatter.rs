//! Writes single blocks into an old file whose blocks alternate between holes and data, and whose extent btree has
//! nearly full leaves: each write adds a record, at worst each to another full leaf.

use model::Rng;

use super::contents::FileWorker;
use super::{CallResult, RoundState, TrackedFile, pause};

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(state: &RoundState, file: &TrackedFile, mut rng: Rng, steps: usize) -> Result<(), String> {
    let size = file.known().size.last();
    let work = FileWorker::open(state, file, size)?;
    for step in 0..steps {
        if state.is_over() || work.lost.get() {
            return Ok(());
        }
        let in_step = |message: String| format!("step {step}: {message}");
        match rng.below(10) {
            0..=2 => work.sync().map_err(in_step)?,
            3 => work.compare().map_err(in_step)?,
            4 => change_blocks(state, size, &mut rng, |at| work.punch(at, state.block)).map_err(in_step)?,
            _ => change_blocks(state, size, &mut rng, |at| work.write(at, state.block)).map_err(in_step)?,
        }
        pause(&mut rng);
    }
    work.compare().map_err(|message| format!("at the end: {message}"))
}

/// Changes blocks at a constant distance, or random ones, until a call is refused.
fn change_blocks(
    state: &RoundState,
    size: u64,
    rng: &mut Rng,
    change: impl Fn(u64) -> Result<CallResult, String>,
) -> Result<(), String> {
    let blocks = (size / state.block).max(1);
    let max = [4, 20, 120][rng.index(3)];
    let distance = [2, 30, 300, 0][rng.index(4)];
    let (mut at, step) = (rng.below(blocks), 1 + rng.below(distance.max(1)));
    for _ in 0..1 + rng.below(max) {
        if change(at * state.block)? != CallResult::Done {
            break;
        }
        at = if distance == 0 { rng.below(blocks) } else { (at + step) % blocks };
    }
    Ok(())
}
