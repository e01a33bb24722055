//! Overlapping contents of files against the reference-count tree.
//!
//! Both sides become runs of one count: maximal, above one owner, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

use base::{AgBlock, AgNumber};
use format::btree::{Btree, REFCOUNT_COW, RefcountBt};
use format::{Damage, Place};

use super::claim::Claim;
use crate::ag::Root;
use crate::tree::TreeWalk;
use crate::volume::Volume;

/// The largest count that the tree can hold: blocks with more owners are no longer counted.
const MOST_OWNERS: u32 = u32::MAX - 1;

/// Blocks `start..end` with `owners` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shared {
    start: u64,
    end: u64,
    owners: u32,
}

impl Shared {
    /// Takes `next` in, if it is more of the same.
    fn join(&mut self, next: &Self) -> bool {
        let joins = self.end == next.start && self.owners == next.owners;
        if joins {
            self.end = next.end;
        }
        joins
    }
}

/// Counts how many claims lie over each block, block by block, as they come in order of their first blocks.
#[derive(Default)]
struct Overlaps {
    /// Ends of the claims over the current block.
    ends: BinaryHeap<Reverse<u64>>,
    /// Everything before this block has been counted.
    swept: u64,
    /// The last run, which may still grow.
    pending: Option<Shared>,
}

impl Overlaps {
    /// The next claim. `each` gets the runs that are complete.
    fn push(&mut self, start: u64, end: u64, each: &mut dyn FnMut(Shared)) {
        self.sweep_to(start, each);
        self.ends.push(Reverse(end));
    }

    /// All claims were pushed.
    fn finish(&mut self, each: &mut dyn FnMut(Shared)) {
        self.sweep_to(u64::MAX, each);
        self.pending.take().into_iter().for_each(each);
    }

    /// Counts all blocks before `target`, of which every claim has been pushed.
    fn sweep_to(&mut self, target: u64, each: &mut dyn FnMut(Shared)) {
        while let Some(Reverse(end)) = self.ends.peek().copied() {
            let until = end.min(target);
            if until > self.swept {
                let owners = u32::try_from(self.ends.len()).unwrap_or(u32::MAX).min(MOST_OWNERS);
                if owners > 1 {
                    self.run(Shared { start: self.swept, end: until, owners }, each);
                }
                self.swept = until;
            }
            if end > target {
                return;
            }
            self.ends.pop();
        }
        self.swept = target;
    }

    fn run(&mut self, run: Shared, each: &mut dyn FnMut(Shared)) {
        if !self.pending.as_mut().is_some_and(|pending| pending.join(&run)) {
            self.pending.replace(run).into_iter().for_each(each);
        }
    }
}

/// The comparison of one AG.
pub(crate) struct Sharing<'v> {
    volume: &'v Volume<'v>,
    ag: AgNumber,
    tree: TreeWalk<'v, RefcountBt>,
    used: usize,
    /// The next run of the tree, maximal.
    counted: Option<Shared>,
    overlaps: Overlaps,
}

impl<'v> Sharing<'v> {
    pub fn new(volume: &'v Volume<'v>, ag: AgNumber, root: Root) -> Self {
        let mut tree = TreeWalk::new(volume).quiet();
        tree.begin(ag, root.block, root.levels, &mut |_, _| ());
        tree.next_leaf(&mut |_, _| ());
        let mut new = Self { volume, ag, tree, used: 0, counted: None, overlaps: Overlaps::default() };
        new.counted = new.next_counted();
        new
    }

    /// The next claim of a data fork, in order of blocks.
    pub fn push(&mut self, claim: &Claim) {
        let mut overlaps = std::mem::take(&mut self.overlaps);
        overlaps.push(claim.start.into(), claim.end(), &mut |run| self.compare(Some(run)));
        self.overlaps = overlaps;
    }

    /// All claims were pushed.
    pub fn finish(mut self) {
        let mut overlaps = std::mem::take(&mut self.overlaps);
        overlaps.finish(&mut |run| self.compare(Some(run)));
        self.compare(None);
    }

    /// Compares the next maximal run of the claims, `None` at their end, with what the tree says up to there.
    fn compare(&mut self, run: Option<Shared>) {
        while let Some(counted) = self.counted {
            if run == Some(counted) {
                self.counted = self.next_counted();
                return;
            }
            if run.is_some_and(|run| counted.start >= run.end) {
                break;
            }
            self.counted = self.next_counted();
            let overlapping = run.filter(|run| run.start < counted.end);
            self.differ(overlapping, Some(counted));
            if overlapping.is_some() {
                return;
            }
        }
        if run.is_some() {
            self.differ(run, None);
        }
    }

    #[cold]
    fn differ(&self, run: Option<Shared>, counted: Option<Shared>) {
        // What is missing on one side proves nothing where that side is known to be incomplete.
        if self.tree.is_incomplete() || self.volume.owners_missing.load(Ordering::Relaxed) {
            return;
        }
        let text = |run: Option<Shared>| match run {
            Some(Shared { start, end, owners }) => {
                format!("{owners} owners of {} blocks from {start:#x}", end - start)
            }
            None => "no shared blocks".to_owned(),
        };
        let start = run.or(counted).map_or(0, |run| run.start);
        let place = Place::block(self.ag, AgBlock(start as u32));
        self.volume.error(place, Damage::new(RefcountBt::NAME, "record", text(run), text(counted)));
    }

    /// The next maximal run of the tree; copy-on-write staging is not shared.
    fn next_counted(&mut self) -> Option<Shared> {
        let mut whole: Option<Shared> = None;
        loop {
            let Some(record) = self.tree.records().get(self.used) else {
                self.used = 0;
                if self.tree.next_leaf(&mut |_, _| ()) {
                    continue;
                }
                return whole;
            };
            let start = u64::from(record.startblock.get());
            let run = Shared {
                start,
                end: start + u64::from(record.blockcount.get()),
                owners: record.refcount.get(),
            };
            if record.startblock.get() & REFCOUNT_COW == 0 {
                match whole.as_mut().map(|whole| whole.join(&run)) {
                    None => whole = Some(run),
                    Some(true) => (),
                    Some(false) => return whole,
                }
            }
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeded claims of a small space, counted block by block.
    #[test]
    fn runs_are_what_counting_each_block_gives() {
        const BLOCKS: u64 = 64;
        let mut seed = 0x5eed_u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        for _ in 0..500 {
            let claims = next(12) as usize;
            let mut claim = |_| {
                let start = next(BLOCKS - 10);
                (start, start + 1 + next(9))
            };
            let mut claims: Vec<(u64, u64)> = (0..claims).map(&mut claim).collect();
            claims.sort_unstable();
            let mut runs = Vec::new();
            let mut overlaps = Overlaps::default();
            claims.iter().for_each(|(start, end)| overlaps.push(*start, *end, &mut |run| runs.push(run)));
            overlaps.finish(&mut |run| runs.push(run));
            for block in 0..BLOCKS {
                let owners = claims.iter().filter(|(start, end)| (*start..*end).contains(&block)).count();
                let run = runs.iter().find(|run| (run.start..run.end).contains(&block));
                let counted = run.map_or(owners.min(1), |run| run.owners as usize);
                assert_eq!(counted, owners, "block {block} of {claims:?}");
            }
            let maximal = |pair: &[Shared]| {
                pair[0].end <= pair[1].start
                    && !(pair[0].end == pair[1].start && pair[0].owners == pair[1].owners)
            };
            assert!(runs.windows(2).all(maximal), "{runs:?}");
        }
    }
}
