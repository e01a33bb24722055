//! Cleaning: live blocks of segments that are mostly garbage are written again, so that the segments can go.
//!
//! # Invariants
//! - A block is written again only if it is still where it was found: a newer write counts.
//! - Segments that a snapshot, a clone or a parent uses stay: writing their blocks again would free nothing.

use std::collections::{BTreeSet, HashSet};

use crate::error::Result;
use crate::map::Lookup;
use crate::names::Kind;
use crate::segment::Entry;
use crate::state::Core;

/// The share of live blocks, in percent, that cleaning keeps up.
pub const UTILISATION: u64 = 60;
/// Blocks that are looked up at once: in the worst case, each needs another page of the map.
const LOOKUPS: usize = 256;
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
    /// Cleans segments while less than [`UTILISATION`] percent of the stored blocks are live. Returns out of how many
    /// it has moved blocks; the next checkpoint retires them.
    pub fn clean(&self) -> Result<usize> {
        let kept: HashSet<(u64, u64)> = {
            let publisher = self.publisher.lock();
            let ids = publisher.kept.values().flatten();
            ids.filter(|(kind, ..)| *kind == Kind::Segment).map(|(_, epoch, seq)| (*epoch, *seq)).collect()
        };
        let mut cleaned = 0;
        for victim in &self.victims(&kept) {
            cleaned += usize::from(self.clean_segment(victim)?);
        }
        Ok(cleaned)
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

    /// Returns whether there was a live block: a directory that is wrong about that must not be cleaned for ever.
    fn clean_segment(&self, victim: &Victim) -> Result<bool> {
        // Retired and deleted meanwhile, because nothing in it was live.
        let Some((_, entries, _)) = self.client()?.get_segment(victim.epoch, victim.seq)? else {
            return Ok(false);
        };
        let blocks = |entry: &Entry| match *entry {
            Entry::Data { block, count, .. } => block..block + u64::from(count),
            Entry::Hole { .. } => 0..0,
        };
        let blocks: Vec<u64> = entries.iter().flat_map(blocks).collect();
        let mut is_live = false;
        for blocks in blocks.chunks(LOOKUPS) {
            let live = self.blocks_in(victim.slot, blocks)?;
            self.rewrite(&live)?;
            is_live |= !live.is_empty();
        }
        Ok(is_live)
    }

    /// Those of some blocks that are in a segment. Loads the pages of the map.
    fn blocks_in(&self, slot: u32, blocks: &[u64]) -> Result<Vec<(u64, Lookup)>> {
        loop {
            let mut state = self.state.lock();
            self.check(&state)?;
            let (mut found, mut pages) = (Vec::new(), BTreeSet::new());
            for block in blocks {
                match state.map.lookup(*block) {
                    Lookup::Load(page) => drop(pages.insert(page)),
                    Lookup::At(at) if at.slot() == slot => found.push((*block, Lookup::At(at))),
                    _ => {}
                }
            }
            drop(state);
            if pages.is_empty() {
                return Ok(found);
            }
            self.load_pages(&Vec::from_iter(pages))?;
        }
    }
}
