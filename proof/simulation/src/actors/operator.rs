//! Sync, trim, metadata writeback, growing, statistics.

use model::Rng;
use volume::Volume;

use super::{RoundState, pause};

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(state: &RoundState, mut rng: Rng, steps: usize) -> Result<(), String> {
    let volume = state.volume();
    for _ in 0..steps / 4 {
        if state.is_over() {
            break;
        }
        let lengths = state.expected.lengths();
        match rng.below(10) {
            0..=3 => {
                if state.require("sync", volume.sync())? {
                    state.expected.synced(&lengths);
                }
            }
            4 => drop(state.require("sync of changes", volume.sync_metadata())?),
            5 | 6 => drop(state.require("trim", volume.trim(0))?),
            7 => drop(state.require("metadata writeback", volume.write_back_all())?),
            8 => drop(state.require("grow", volume.grow(larger(volume, &mut rng)))?),
            _ => {
                let statistics = volume.statistics();
                if let Some(cause) = statistics.shut_down.filter(|_| !state.fails) {
                    return Err(format!("the volume was shut down: {cause}"));
                }
                let (available, free) = (statistics.blocks_available, statistics.blocks_free);
                if available > free {
                    return Err(format!("{available} blocks are available, but only {free} are free"));
                }
            }
        }
        pause(&mut rng);
    }
    Ok(())
}

/// A larger size in blocks: in the last AG, or with new AGs.
fn larger(volume: &Volume, rng: &mut Rng) -> u64 {
    let geometry = volume.geometry();
    let max = [64, u64::from(geometry.ag_blocks) / 2, u64::from(geometry.ag_blocks)][rng.index(3)];
    geometry.blocks() + 1 + rng.below(max)
}
