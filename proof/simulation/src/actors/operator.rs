//! What an operator does: sync, trim, metadata writeback, statistics.

use model::Rng;

use super::{Stage, rest};

/// Works on the volume.
///
/// # Errors
/// In words.
pub fn work(stage: &Stage, mut rng: Rng, steps: usize) -> Result<(), String> {
    let volume = stage.volume();
    for _ in 0..steps / 4 {
        if stage.is_over() {
            break;
        }
        let lengths = stage.seen.lengths();
        match rng.below(10) {
            0..=3 => {
                if stage.must("sync", volume.sync())? {
                    stage.seen.synced(&lengths);
                }
            }
            4 => drop(stage.must("sync of changes", volume.sync_changes())?),
            5 | 6 => drop(stage.must("trim", volume.trim(0))?),
            7 => drop(stage.must("metadata writeback", volume.write_home())?),
            _ => {
                let statistics = volume.statistics();
                if let Some(cause) = statistics.shut_down.filter(|_| !stage.fails) {
                    return Err(format!("the volume was shut down: {cause}"));
                }
                let (available, free) = (statistics.blocks_available, statistics.blocks_free);
                if available > free {
                    return Err(format!("{available} blocks are promised, and {free} are free"));
                }
            }
        }
        rest(&mut rng);
    }
    Ok(())
}
