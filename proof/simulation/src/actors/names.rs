//! Works on a tree of its own, and compares every result with the model.

use std::sync::atomic::Ordering::SeqCst;

use base::time::Time;
use model::{Generator, History, NameStyles, Operation, OperationMix, Rng, Session, StepOutcome, Tolerance};

use super::{RoundState, pause};

/// Runs the actor.
///
/// # Errors
/// A result that differs from the model's.
pub fn work(state: &RoundState, tree: usize, mut rng: Rng, steps: usize) -> Result<History, String> {
    let (expected, home) = (&state.expected, state.expected.homes[tree]);
    let session = Session::new(&state.open, &state.ticks, home, true).map_err(|error| error.to_string())?;
    let tolerance = Tolerance { no_space: true, io_errors: state.fails };
    let mut session = session.tolerating(tolerance);
    let long = NameStyles { short: 1, long: 6, bytes: 1, same_hash: 2 };
    let mix = match rng.below(4) {
        0 => OperationMix { sync_in: 8, files_max: 40, files_min: 2, ..OperationMix::MIXED },
        1 => OperationMix { names: long, sync_in: 15, files_max: 120, ..OperationMix::DIRECTORY_FORMATS },
        2 => OperationMix { sync_in: 30, files_max: 200, ..OperationMix::INODES },
        _ => OperationMix::MIXED,
    };
    let mut generator = Generator::new(rng.next_u64(), mix);
    for step in 0..steps {
        if state.is_over() {
            break;
        }
        let operation = generator.next(session.tree());
        let lengths = expected.lengths();
        // Each step of each thread has its own timestamp, in the range of inodes without `bigtime`.
        let now = Time { seconds: 1_000_000 + step as i64, nanos: tree as u32 + 1 };
        let stepped = session.step(&operation, now).map_err(|what| format!("step {step}: {what}"))?;
        match stepped {
            StepOutcome::IoError(_) => break,
            StepOutcome::NoSpace if operation == Operation::Sync => {
                return Err(format!("step {step}: a sync failed with ENOSPC"));
            }
            StepOutcome::NoSpace => generator.shrink(),
            StepOutcome::Agreed => {}
        }
        expected.ended[tree].store(session.history().entries.len(), SeqCst);
        if operation == Operation::Sync && stepped == StepOutcome::Agreed {
            expected.synced(&lengths);
        }
        pause(&mut rng);
    }
    Ok(session.into_history())
}
