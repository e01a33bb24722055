//! One allocation group from its first block to its last: each block is free or has one owner, or is shared by files.

use std::io;
use std::sync::atomic::Ordering;

use base::{AgBlock, AgNumber};
use format::{Damage, Place};

use super::claim::{Claim, NO_SHARING, owner_name};
use super::refcount::RefcountComparison;
use super::rmap::RmapComparison;
use super::store::Claims;
use crate::ag::AgSummary;
use crate::volume::Volume;

const SPACE: &str = "space";

/// Compares all claims of an AG with each other, with the rmapbt and with the refcountbt.
pub(crate) fn check_ag(volume: &Volume<'_>, ag: &AgSummary, claims: &Claims) -> io::Result<()> {
    let mut coverage = Coverage::new(volume, ag);
    let mut rmap = ag.rmap.map(|root| RmapComparison::new(volume, ag.number, root));
    let mut refcount = ag.refcount.map(|root| RefcountComparison::new(volume, ag.number, root));
    claims.merge(ag.number.get(), |claim| {
        coverage.push(claim);
        if let Some(rmap) = rmap.as_mut().filter(|_| !claim.is_free()) {
            rmap.push(claim);
        }
        if let Some(refcount) = refcount.as_mut().filter(|_| claim.is_shareable()) {
            refcount.push(claim);
        }
    })?;
    coverage.finish();
    if let Some(rmap) = rmap {
        rmap.finish();
    }
    if let Some(refcount) = refcount {
        refcount.finish();
    }
    Ok(())
}

/// The highest end of some claims, and the claim that ends there.
#[derive(Clone, Copy, Default)]
struct HighestEnd {
    end: u64,
    claim: Option<Claim>,
}

impl HighestEnd {
    fn add(&mut self, claim: &Claim) {
        if claim.end() > self.end {
            *self = Self { end: claim.end(), claim: Some(*claim) };
        }
    }

    /// The claim with the highest end, if it overlaps the next claim.
    fn overlapping(&self, next: &Claim) -> Option<Claim> {
        self.claim.filter(|_| u64::from(next.start) < self.end)
    }
}

/// Finds gaps and overlaps of claims.
struct Coverage<'v> {
    volume: &'v Volume<'v>,
    ag: AgNumber,
    /// Some claims are missing, so gaps are not reported.
    incomplete: bool,
    /// Of all claims.
    all: HighestEnd,
    /// Of claims that must not be shared.
    exclusive: HighestEnd,
    /// Of contents of inodes without the reflink flag.
    no_reflink: HighestEnd,
}

impl<'v> Coverage<'v> {
    fn new(volume: &'v Volume<'v>, ag: &AgSummary) -> Self {
        let incomplete = ag.incomplete || volume.owners_missing.load(Ordering::Relaxed);
        let none = HighestEnd::default();
        Self { volume, ag: ag.number, incomplete, all: none, exclusive: none, no_reflink: none }
    }

    fn push(&mut self, claim: &Claim) {
        self.check_gap_before(claim.start.into());
        let may_share = claim.is_shareable() && self.volume.geometry.features.reflink();
        let ends = if may_share { &self.exclusive } else { &self.all };
        if let Some(other) = ends.overlapping(claim) {
            self.report_overlap(&other, claim);
        } else if let Some(other) = self.all.overlapping(claim) {
            self.check_reflink_flags(&other, claim);
        }
        self.all.add(claim);
        if !may_share {
            self.exclusive.add(claim);
        } else if claim.flags & NO_SHARING != 0 {
            self.no_reflink.add(claim);
        }
    }

    fn check_gap_before(&self, start: u64) {
        if start <= self.all.end || self.incomplete {
            return;
        }
        let found = format!("none of {} blocks", start - self.all.end);
        let damage = Damage::new(SPACE, "owner", "an owner, or free space", found);
        self.volume.error(self.place(self.all.end), damage);
    }

    #[cold]
    fn report_overlap(&self, one: &Claim, other: &Claim) {
        let start = u64::from(other.start);
        let count = one.end().min(other.end()).saturating_sub(start);
        let (expected, found) = (format!("one owner of {count} blocks"), format!("{one}; {other}"));
        self.volume.error(self.place(start), Damage::new(SPACE, "owner", expected, found));
    }

    /// Checks that the inodes of two overlapping claims that may be shared have the reflink flag.
    fn check_reflink_flags(&self, other: &Claim, claim: &Claim) {
        let no_reflink =
            if claim.flags & NO_SHARING != 0 { Some(*claim) } else { self.no_reflink.overlapping(claim) };
        let Some(no_reflink) = no_reflink else { return };
        let place = self.place(claim.start.into()).of_inode(no_reflink.owner.into());
        let with = if no_reflink == *claim { other.owner } else { claim.owner };
        let expected = "the reflink flag (blocks are shared)";
        let found = format!("no reflink flag (blocks are shared with {})", owner_name(with));
        self.volume.error(place, Damage::new("inode", "flags2", expected, found));
    }

    fn finish(self) {
        self.check_gap_before(self.volume.geometry.ag_length(self.ag).into());
    }

    fn place(&self, block: u64) -> Place {
        Place::block(self.ag, AgBlock(block as u32))
    }
}
