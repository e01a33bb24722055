//! Claims, compared with the reverse mappings in the same order.
//!
//! On most volumes each claim is equal to one record. Claims and records that differ are collected, merged where one
//! mapping can describe them, and compared again, so that a mapping that is split into two is not reported.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use base::{AgBlock, AgNumber};
use format::btree::{Btree, RmapBt, rmap};
use format::{Damage, Place};

use super::claim::{Claim, merge_adjacent};
use crate::ag::TreeRoot;
use crate::tree::TreeRecords;
use crate::volume::Volume;

/// Maximum number of differences that are collected per side.
const MAX_DIFFERENCES: usize = 1 << 18;

/// The comparison of one AG.
pub(crate) struct RmapComparison<'v> {
    volume: &'v Volume<'v>,
    ag: AgNumber,
    records: TreeRecords<'v, RmapBt>,
    /// Claims without an equal mapping.
    unmapped: Vec<Claim>,
    /// Mappings without an equal claim.
    unclaimed: Vec<Claim>,
}

impl<'v> RmapComparison<'v> {
    pub fn new(volume: &'v Volume<'v>, ag: AgNumber, root: TreeRoot) -> Self {
        let records = TreeRecords::new(volume, ag, root);
        Self { volume, ag, records, unmapped: Vec::new(), unclaimed: Vec::new() }
    }

    fn peek(&mut self) -> Option<Claim> {
        self.records.peek().map(|record| Claim::of_rmap(self.ag, &record))
    }

    /// Adds the next claim, in order.
    pub fn push(&mut self, claim: &Claim) {
        while let Some(mapped) = self.peek() {
            if mapped == (Claim { flags: 0, ..*claim }) {
                self.records.next();
                return;
            }
            if (mapped.start, mapped.owner, mapped.offset) >= (claim.start, claim.owner, claim.offset) {
                break;
            }
            self.records.next();
            add_difference(&mut self.unclaimed, mapped);
        }
        add_difference(&mut self.unmapped, *claim);
    }

    /// Merges the differences, and reports those that remain.
    pub fn finish(mut self) {
        while let Some(mapped) = self.peek() {
            self.records.next();
            add_difference(&mut self.unclaimed, mapped);
        }
        let unmapped = merged(std::mem::take(&mut self.unmapped));
        let unclaimed = merged(std::mem::take(&mut self.unclaimed));
        // If one side is known to be incomplete, what it lacks is not reported.
        if !self.records.is_incomplete() {
            for claim in unmapped.difference(&unclaimed) {
                let found = unclaimed.iter().find(|other| other.start == claim.start);
                let found = found.map_or_else(|| "no mapping".to_owned(), Claim::to_string);
                self.report(claim, claim, found);
            }
        }
        if !self.volume.owners_missing.load(Ordering::Relaxed) {
            for mapped in unclaimed.difference(&unmapped) {
                if self.records.is_incomplete() || !unmapped.iter().any(|claim| claim.start == mapped.start) {
                    self.report(mapped, "no mapping", mapped);
                }
            }
        }
    }

    fn report(&self, at: &Claim, expected: impl std::fmt::Display, found: impl std::fmt::Display) {
        let place = Place::block(self.ag, AgBlock(at.start));
        self.volume.error(place, Damage::new(RmapBt::NAME, "record", expected, found));
    }
}

fn add_difference(list: &mut Vec<Claim>, claim: Claim) {
    if list.len() < MAX_DIFFERENCES {
        list.push(claim);
    }
}

/// Merges claims that one mapping can describe.
fn merged(mut claims: Vec<Claim>) -> BTreeSet<Claim> {
    let offset_flags = |claim: &Claim| claim.offset & !rmap::OFFSET_MASK;
    claims.sort_unstable_by_key(|claim| (claim.owner, offset_flags(claim), claim.start, claim.offset));
    merge_adjacent(&mut claims);
    claims.into_iter().map(|claim| Claim { flags: 0, ..claim }).collect()
}
