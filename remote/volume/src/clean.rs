//! Cleaning: live blocks of segments that are mostly garbage are written again, so that the segments can go.
//!
//! # Invariants
//! - A block is written again only if it is still where it was found: a newer write counts.
//! - Segments that a snapshot, a clone or a parent uses stay: writing their blocks again would free nothing.

use std::collections::HashSet;

use crate::error::Result;
use crate::map::Lookup;
use crate::names::Kind;
use crate::segment::Entry;
use crate::state::Core;

/// The share of live blocks, in percent, that cleaning keeps up.
pub const UTILISATION: u64 = 60;
/// Segments that one pass cleans at most.
const SEGMENTS: usize = 16;

/// A segment to be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Victim {
    slot: u32,
    epoch: u64,
    seq: u64,
}

impl Core {
    /// Cleans segments while less than [`UTILISATION`] percent of the stored blocks are live. Returns how many it
    /// cleaned; the next checkpoint retires them.
    pub fn clean(&self) -> Result<usize> {
        let kept: HashSet<(u64, u64)> = {
            let publisher = self.publisher.lock();
            let ids = publisher.kept.values().flatten();
            ids.filter(|(kind, ..)| *kind == Kind::Segment).map(|(_, epoch, seq)| (*epoch, *seq)).collect()
        };
        let victims = self.victims(&kept);
        for victim in &victims {
            self.clean_segment(victim)?;
        }
        Ok(victims.len())
    }

    fn victims(&self, kept: &HashSet<(u64, u64)>) -> Vec<Victim> {
        let state = self.state.lock();
        let own = state.map.stored.segments.iter().filter(|(_, segment)| segment.origin == 0);
        let mut segments: Vec<_> = own.filter(|(_, one)| !kept.contains(&(one.epoch, one.seq))).collect();
        let sum = |of: fn(&crate::map::Segment) -> u32| {
            segments.iter().map(|(_, one)| u64::from(of(one))).sum::<u64>()
        };
        let (mut blocks, live) = (sum(|one| one.blocks), sum(|one| one.live));
        let share = |live: u32, blocks: u32| u64::from(live) * 100 / u64::from(blocks.max(1));
        segments.sort_by_key(|(slot, one)| (share(one.live, one.blocks), *slot));
        let mut victims = Vec::new();
        for (slot, one) in segments {
            let is_clean = blocks == 0 || live * 100 / blocks >= UTILISATION;
            if is_clean || victims.len() >= SEGMENTS || share(one.live, one.blocks) >= UTILISATION {
                break;
            }
            // Dead blocks go; live ones move.
            blocks -= u64::from(one.blocks.saturating_sub(one.live));
            victims.push(Victim { slot, epoch: one.epoch, seq: one.seq });
        }
        victims
    }

    fn clean_segment(&self, victim: &Victim) -> Result<()> {
        // Retired and deleted meanwhile, because nothing in it was live.
        let Some((_, entries, _)) = self.client()?.get_segment(victim.epoch, victim.seq)? else {
            return Ok(());
        };
        let blocks = |entry: &Entry| match *entry {
            Entry::Data { block, count, .. } => block..block + u64::from(count),
            Entry::Hole { .. } => 0..0,
        };
        let mut live = Vec::new();
        for block in entries.iter().flat_map(blocks) {
            let found = self.look_up(block)?;
            if matches!(found, Lookup::At(at) if at.slot() == victim.slot) {
                live.push((block, found));
            }
        }
        self.rewrite(&live)
    }

    /// Where a block is. Loads the page of the map.
    fn look_up(&self, block: u64) -> Result<Lookup> {
        loop {
            let mut state = self.state.lock();
            self.check(&state)?;
            match state.map.lookup(block) {
                Lookup::Load(page) => {
                    drop(state);
                    self.load_pages(&[page])?;
                }
                found => return Ok(found),
            }
        }
    }
}
