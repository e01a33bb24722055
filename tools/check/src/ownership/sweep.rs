//! One allocation group from its first block to its last: every block is free or owned, and owned once unless shared.

use std::io;
use std::sync::atomic::Ordering;

use base::{AgBlock, AgNumber};
use format::{Damage, Place};

use super::claim::{Claim, NO_SHARING, owner_name};
use super::refcount::Sharing;
use super::rmap::Mappings;
use super::store::Claims;
use crate::ag::AgTrees;
use crate::volume::Volume;

const SPACE: &str = "space";

/// Lays all claims of an AG against each other and against its trees.
pub(crate) fn check_ag(
    volume: &Volume<'_>,
    ag: AgNumber,
    trees: &AgTrees,
    claims: &Claims,
) -> io::Result<()> {
    let mut tiling = Tiling::new(volume, ag, trees);
    let mut mappings = trees.rmap.map(|root| Mappings::new(volume, ag, root));
    let mut sharing = trees.refcount.map(|root| Sharing::new(volume, ag, root));
    claims.merge(ag.get(), |claim| {
        tiling.push(claim);
        if let Some(mappings) = mappings.as_mut().filter(|_| !claim.is_free()) {
            mappings.push(claim);
        }
        if let Some(sharing) = sharing.as_mut().filter(|_| claim.is_shareable()) {
            sharing.push(claim);
        }
    })?;
    tiling.finish();
    if let Some(mappings) = mappings {
        mappings.finish();
    }
    if let Some(sharing) = sharing {
        sharing.finish();
    }
    Ok(())
}

/// The furthest end of some claims, and the claim that reaches it.
#[derive(Clone, Copy, Default)]
struct Reach {
    end: u64,
    claim: Option<Claim>,
}

impl Reach {
    fn extend(&mut self, claim: &Claim) {
        if claim.end() > self.end {
            *self = Self { end: claim.end(), claim: Some(*claim) };
        }
    }

    fn meets(&self, claim: &Claim) -> Option<Claim> {
        self.claim.filter(|_| u64::from(claim.start) < self.end)
    }
}

/// Gaps and overlaps.
struct Tiling<'v> {
    volume: &'v Volume<'v>,
    ag: AgNumber,
    /// Some claims are missing, so that gaps prove nothing.
    gaps_expected: bool,
    all: Reach,
    /// Of claims that must not be shared.
    exclusive: Reach,
    /// Of contents of inodes that lack the reflink flag.
    unflagged: Reach,
}

impl<'v> Tiling<'v> {
    fn new(volume: &'v Volume<'v>, ag: AgNumber, trees: &AgTrees) -> Self {
        let gaps_expected = trees.incomplete || volume.owners_missing.load(Ordering::Relaxed);
        let none = Reach::default();
        Self { volume, ag, gaps_expected, all: none, exclusive: none, unflagged: none }
    }

    fn push(&mut self, claim: &Claim) {
        self.gap_before(claim.start.into());
        let may_share = claim.is_shareable() && self.volume.geometry.features.reflink();
        let other = if may_share { self.exclusive.meets(claim) } else { self.all.meets(claim) };
        if let Some(other) = other {
            self.overlap(&other, claim);
        } else if let Some(other) = self.all.meets(claim).filter(|_| may_share) {
            self.shared(&other, claim);
        }
        self.all.extend(claim);
        if !may_share {
            self.exclusive.extend(claim);
        } else if claim.notes & NO_SHARING != 0 {
            self.unflagged.extend(claim);
        }
    }

    fn gap_before(&self, start: u64) {
        if start <= self.all.end || self.gaps_expected {
            return;
        }
        let gap = format!("{} blocks that are neither", start - self.all.end);
        self.volume.error(self.place(self.all.end), Damage::new(SPACE, "owner", "blocks free or owned", gap));
    }

    #[cold]
    fn overlap(&self, one: &Claim, other: &Claim) {
        let start = u64::from(other.start);
        let count = one.end().min(other.end()).saturating_sub(start);
        self.volume.error(
            self.place(start),
            Damage::new(
                SPACE,
                "owner",
                format_args!("one owner of {count} blocks"),
                format_args!("{one}; {other}"),
            ),
        );
    }

    /// Both may share; their inodes must say so.
    fn shared(&self, other: &Claim, claim: &Claim) {
        let unflagged =
            if claim.notes & NO_SHARING != 0 { Some(*claim) } else { self.unflagged.meets(claim) };
        let Some(unflagged) = unflagged else { return };
        let place = self.place(claim.start.into()).of_inode(unflagged.owner.into());
        let with = if unflagged == *claim { other.owner } else { claim.owner };
        self.volume.error(
            place,
            Damage::new(
                "inode",
                "flags2",
                "the reflink flag, since blocks are shared",
                format_args!("no reflink flag, and blocks shared with {}", owner_name(with)),
            ),
        );
    }

    fn finish(self) {
        self.gap_before(self.volume.geometry.ag_length(self.ag).into());
    }

    fn place(&self, block: u64) -> Place {
        Place::block(self.ag, AgBlock(block as u32))
    }
}
