//! Claims against the reverse-mapping tree, both in one order.
//!
//! Most volumes agree record for record. What does not agree is put aside, joined where one mapping could say it, and
//! compared again, so that a split that means nothing is no finding.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use base::{AgBlock, AgNumber};
use format::btree::{Btree, RmapBt, rmap};
use format::{Damage, Place};

use super::claim::{Claim, coalesce};
use crate::ag::Root;
use crate::tree::TreeWalk;
use crate::volume::Volume;

/// More differences than this are not told apart.
const MOST_DIFFERENCES: usize = 1 << 18;

/// The comparison of one AG.
pub(crate) struct Mappings<'v> {
    volume: &'v Volume<'v>,
    ag: AgNumber,
    tree: TreeWalk<'v, RmapBt>,
    /// Records of the open leaf that were used.
    used: usize,
    unmapped: Vec<Claim>,
    unclaimed: Vec<Claim>,
    last: Option<Claim>,
}

impl<'v> Mappings<'v> {
    pub fn new(volume: &'v Volume<'v>, ag: AgNumber, root: Root) -> Self {
        let mut tree = TreeWalk::new(volume).quiet();
        tree.begin(ag, root.block, root.levels, &mut |_, _| ());
        let (unmapped, unclaimed) = (Vec::new(), Vec::new());
        let mut new = Self { volume, ag, tree, used: 0, unmapped, unclaimed, last: None };
        new.tree.next_leaf(&mut |_, _| ());
        new
    }

    fn peek(&mut self) -> Option<Claim> {
        loop {
            if let Some(rmap) = self.tree.records().get(self.used) {
                return Some(Claim::of_mapping(self.ag, rmap));
            }
            self.used = 0;
            if !self.tree.next_leaf(&mut |_, _| ()) {
                return None;
            }
        }
    }

    /// The next claim, in order.
    pub fn push(&mut self, claim: &Claim) {
        while let Some(mapped) = self.peek() {
            if mapped.mapping() == claim.mapping() {
                self.used += 1;
                return;
            }
            if (mapped.start, mapped.owner, mapped.offset) >= (claim.start, claim.owner, claim.offset) {
                break;
            }
            self.used += 1;
            put_aside(&mut self.unclaimed, mapped);
        }
        put_aside(&mut self.unmapped, *claim);
        self.last = Some(*claim);
    }

    /// Compares what was put aside, and reports what is left of it.
    pub fn finish(mut self) {
        while let Some(mapped) = self.peek() {
            self.used += 1;
            put_aside(&mut self.unclaimed, mapped);
        }
        let unmapped = joined(std::mem::take(&mut self.unmapped));
        let unclaimed = joined(std::mem::take(&mut self.unclaimed));
        // Where a side is known to be incomplete, what it lacks proves nothing.
        if !self.tree.is_incomplete() {
            for claim in unmapped.difference(&unclaimed) {
                let found = unclaimed.iter().find(|other| other.start == claim.start);
                let found = found.map_or_else(|| "no mapping".to_owned(), Claim::to_string);
                self.tell(claim, claim, found);
            }
        }
        if !self.volume.owners_missing.load(Ordering::Relaxed) {
            for mapped in unclaimed.difference(&unmapped) {
                if self.tree.is_incomplete() || !unmapped.iter().any(|claim| claim.start == mapped.start) {
                    self.tell(mapped, "no mapping", mapped);
                }
            }
        }
    }

    fn tell(&self, at: &Claim, expected: impl std::fmt::Display, found: impl std::fmt::Display) {
        let place = Place::block(self.ag, AgBlock(at.start));
        self.volume.error(place, Damage::new(RmapBt::NAME, "record", expected, found));
    }
}

fn put_aside(list: &mut Vec<Claim>, claim: Claim) {
    if list.len() < MOST_DIFFERENCES {
        list.push(claim);
    }
}

fn joined(mut claims: Vec<Claim>) -> BTreeSet<Claim> {
    let flags = |claim: &Claim| claim.offset & !rmap::OFFSET_MASK;
    claims.sort_unstable_by_key(|claim| (claim.owner, flags(claim), claim.start, claim.offset));
    coalesce(&mut claims);
    claims.into_iter().map(|claim| Claim { notes: 0, ..claim }).collect()
}
