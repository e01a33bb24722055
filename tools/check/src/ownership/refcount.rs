//! Overlapping claims of file contents, compared with the refcountbt.
//!
//! Both sides are converted to extents with the same number of owners: at least two, as long as possible, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

use base::{AgBlock, AgNumber};
use format::btree::{Btree, REFCOUNT_COW, RefcountBt};
use format::{Damage, Place};

use super::claim::Claim;
use crate::ag::TreeRoot;
use crate::tree::TreeRecords;
use crate::volume::Volume;

/// The largest reference count that a record can store.
const MAX_OWNERS: u32 = u32::MAX - 1;

/// Blocks `start..end`, each with the same number of owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SharedExtent {
    start: u64,
    end: u64,
    owners: u32,
}

impl SharedExtent {
    /// Appends `next` if it is adjacent and has as many owners.
    fn merge(&mut self, next: &Self) -> bool {
        let merge = self.end == next.start && self.owners == next.owners;
        if merge {
            self.end = next.end;
        }
        merge
    }
}

/// Counts the claims over each block. Claims are pushed in order of their first blocks.
#[derive(Default)]
struct Overlaps {
    /// Ends of the claims over the current block.
    ends: BinaryHeap<Reverse<u64>>,
    /// The current block: all blocks before it were counted.
    current: u64,
    /// The last extent, which may still grow.
    pending: Option<SharedExtent>,
}

impl Overlaps {
    /// Adds the next claim. Calls `visit` with complete shared extents.
    fn push(&mut self, start: u64, end: u64, visit: &mut dyn FnMut(SharedExtent)) {
        self.advance(start, visit);
        self.ends.push(Reverse(end));
    }

    /// Calls `visit` with the remaining extents, after the last claim.
    fn finish(&mut self, visit: &mut dyn FnMut(SharedExtent)) {
        self.advance(u64::MAX, visit);
        self.pending.take().into_iter().for_each(visit);
    }

    /// Counts all blocks before `target`, whose claims were all pushed.
    fn advance(&mut self, target: u64, visit: &mut dyn FnMut(SharedExtent)) {
        while let Some(Reverse(claim_end)) = self.ends.peek().copied() {
            let end = claim_end.min(target);
            if end > self.current {
                let owners = u32::try_from(self.ends.len()).unwrap_or(u32::MAX).min(MAX_OWNERS);
                if owners > 1 {
                    self.add(SharedExtent { start: self.current, end, owners }, visit);
                }
                self.current = end;
            }
            if claim_end > target {
                return;
            }
            self.ends.pop();
        }
        self.current = target;
    }

    fn add(&mut self, extent: SharedExtent, visit: &mut dyn FnMut(SharedExtent)) {
        if !self.pending.as_mut().is_some_and(|pending| pending.merge(&extent)) {
            self.pending.replace(extent).into_iter().for_each(visit);
        }
    }
}

/// The comparison of one AG.
pub(crate) struct RefcountComparison<'v> {
    volume: &'v Volume<'v>,
    ag: AgNumber,
    records: TreeRecords<'v, RefcountBt>,
    /// The next shared extent of the refcountbt.
    stored: Option<SharedExtent>,
    overlaps: Overlaps,
}

impl<'v> RefcountComparison<'v> {
    pub fn new(volume: &'v Volume<'v>, ag: AgNumber, root: TreeRoot) -> Self {
        let records = TreeRecords::new(volume, ag, root);
        let mut new = Self { volume, ag, records, stored: None, overlaps: Overlaps::default() };
        new.stored = new.next_stored();
        new
    }

    /// Adds the next claim of a data fork, in order of blocks.
    pub fn push(&mut self, claim: &Claim) {
        let mut overlaps = std::mem::take(&mut self.overlaps);
        overlaps.push(claim.start.into(), claim.end(), &mut |extent| self.compare(Some(extent)));
        self.overlaps = overlaps;
    }

    /// Compares the rest, after the last claim.
    pub fn finish(mut self) {
        let mut overlaps = std::mem::take(&mut self.overlaps);
        overlaps.finish(&mut |extent| self.compare(Some(extent)));
        self.compare(None);
    }

    /// Compares the next shared extent of the claims, or their end, with the stored extents up to its end.
    fn compare(&mut self, counted: Option<SharedExtent>) {
        while let Some(stored) = self.stored {
            if counted == Some(stored) {
                self.stored = self.next_stored();
                return;
            }
            if counted.is_some_and(|counted| stored.start >= counted.end) {
                break;
            }
            self.stored = self.next_stored();
            let overlapping = counted.filter(|counted| counted.start < stored.end);
            self.report(overlapping, Some(stored));
            if overlapping.is_some() {
                return;
            }
        }
        if counted.is_some() {
            self.report(counted, None);
        }
    }

    #[cold]
    fn report(&self, counted: Option<SharedExtent>, stored: Option<SharedExtent>) {
        // If one side is known to be incomplete, differences are not reported.
        if self.records.is_incomplete() || self.volume.owners_missing.load(Ordering::Relaxed) {
            return;
        }
        let text = |extent: Option<SharedExtent>| match extent {
            Some(SharedExtent { start, end, owners }) => {
                format!("{owners} owners of {} blocks from {start:#x}", end - start)
            }
            None => "no shared blocks".to_owned(),
        };
        let start = counted.or(stored).map_or(0, |extent| extent.start);
        let place = Place::block(self.ag, AgBlock(start as u32));
        self.volume.error(place, Damage::new(RefcountBt::NAME, "record", text(counted), text(stored)));
    }

    /// The next shared extent of the refcountbt, as long as possible, without CoW staging extents.
    fn next_stored(&mut self) -> Option<SharedExtent> {
        let mut merged: Option<SharedExtent> = None;
        while let Some(record) = self.records.peek() {
            if record.startblock.get() & REFCOUNT_COW == 0 {
                let start = u64::from(record.startblock.get());
                let end = start + u64::from(record.blockcount.get());
                let extent = SharedExtent { start, end, owners: record.refcount.get() };
                match merged.as_mut().map(|merged| merged.merge(&extent)) {
                    None => merged = Some(extent),
                    Some(true) => (),
                    Some(false) => return merged,
                }
            }
            self.records.next();
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the shared extents of random claims with a count of each block.
    #[test]
    fn shared_extents_equal_a_count_of_each_block() {
        const BLOCKS: u64 = 64;
        let mut seed = 0x5eed_u64;
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for _ in 0..500 {
            let claims = next(12) as usize;
            let mut claim = |_| {
                let start = next(BLOCKS - 10);
                (start, start + 1 + next(9))
            };
            let mut claims: Vec<(u64, u64)> = (0..claims).map(&mut claim).collect();
            claims.sort_unstable();
            let mut extents = Vec::new();
            let mut overlaps = Overlaps::default();
            claims.iter().for_each(|(start, end)| overlaps.push(*start, *end, &mut |e| extents.push(e)));
            overlaps.finish(&mut |extent| extents.push(extent));
            for block in 0..BLOCKS {
                let owners = claims.iter().filter(|(start, end)| (*start..*end).contains(&block)).count();
                let extent = extents.iter().find(|extent| (extent.start..extent.end).contains(&block));
                let counted = extent.map_or(owners.min(1), |extent| extent.owners as usize);
                assert_eq!(counted, owners, "block {block} of {claims:?}");
            }
            let maximal = |pair: &[SharedExtent]| {
                pair[0].end <= pair[1].start
                    && !(pair[0].end == pair[1].start && pair[0].owners == pair[1].owners)
            };
            assert!(extents.windows(2).all(maximal), "{extents:?}");
        }
    }
}
