//! What an operator does: sync, trim, metadata writeback, growing the volume, statistics.

use model::Rng;
use volume::Volume;

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
            4 => drop(stage.must("sync of changes", volume.sync_metadata())?),
            5 | 6 => drop(stage.must("trim", volume.trim(0))?),
            7 => drop(stage.must("metadata writeback", volume.write_back_all())?),
            8 => drop(stage.must("grow", volume.grow(larger(volume, &mut rng)))?),
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

/// Blocks of the volume when it has grown: the last group becomes longer, or others come.
fn larger(volume: &Volume, rng: &mut Rng) -> u64 {
    let geometry = volume.geometry();
    let most = [64, u64::from(geometry.ag_blocks) / 2, u64::from(geometry.ag_blocks)][rng.index(3)];
    geometry.blocks() + 1 + rng.below(most)
}
