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

/// The comparison of one AG.
pub(crate) struct Sharing<'v> {
    volume: &'v Volume<'v>,
    ag: AgNumber,
    tree: TreeWalk<'v, RefcountBt>,
    used: usize,
    /// The next run of the tree, maximal.
    counted: Option<Shared>,
    /// Ends of the claims over the current block.
    ends: BinaryHeap<Reverse<u64>>,
    /// Everything before this block has been counted.
    swept: u64,
    /// The last run of claims, which may still grow.
    pending: Option<Shared>,
}

impl<'v> Sharing<'v> {
    pub fn new(volume: &'v Volume<'v>, ag: AgNumber, root: Root) -> Self {
        let mut tree = TreeWalk::new(volume).quiet();
        tree.begin(ag, root.block, root.levels, &mut |_, _| ());
        tree.next_leaf(&mut |_, _| ());
        let ends = BinaryHeap::new();
        let mut new = Self { volume, ag, tree, used: 0, counted: None, ends, swept: 0, pending: None };
        new.counted = new.next_counted();
        new
    }

    /// The next claim of a data fork, in order of blocks.
    pub fn push(&mut self, claim: &Claim) {
        self.sweep_to(claim.start.into());
        self.ends.push(Reverse(claim.end()));
    }

    /// Counts all blocks before `target`, of which every claim has been pushed.
    fn sweep_to(&mut self, target: u64) {
        while let Some(Reverse(end)) = self.ends.peek().copied() {
            let until = end.min(target);
            if until > self.swept {
                let owners = u32::try_from(self.ends.len()).unwrap_or(u32::MAX).min(MOST_OWNERS);
                if owners > 1 {
                    self.run(Shared { start: self.swept, end: until, owners });
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

    fn run(&mut self, run: Shared) {
        if self.pending.as_mut().is_some_and(|pending| pending.join(&run)) {
            return;
        }
        if let Some(whole) = self.pending.replace(run) {
            self.compare(Some(whole));
        }
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

    /// All claims were pushed.
    pub fn finish(mut self) {
        self.sweep_to(u64::MAX);
        if let Some(last) = self.pending.take() {
            self.compare(Some(last));
        }
        self.compare(None);
    }
}
