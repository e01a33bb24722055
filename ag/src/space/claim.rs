//! Claims on free extents, in memory only: file data is being written to them.
//!
//! A writer of new file blocks claims them first, writes the data, and then allocates them in the transaction that maps
//! them: see docs/contents.md. A power cut ends all claims.
//!
//! | part | subject |
//! |---|---|
//! | [`ClaimedExtents`] | the claimed extents of one AG, merged where they touch |
//! | [`Claim`] | a claimed extent; it is released when this is dropped |
//! | [`Groups::claim`] | finding and claiming an extent |
//! | [`Groups::take_claimed`] | allocating claimed extents |
//!
//! # Invariants
//! - A claimed block is free in both trees. No search returns it, not even one that may reuse busy blocks, and the AGFL
//!   is not refilled from it.
//! - No block is claimed twice. An AG's claims grow only under its AGF; they may shrink at any time.
//! - Claimed blocks count as used in an AG's allocatable blocks. The volume's counter does not know of them: the
//!   claimant has reserved as many, or claims no more than are free beyond all reservations.
//!
//! # Locking
//! Together with the busy extents, under their lock of rank `Group`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use base::lock::{Rank, might_lock};
use base::{AgBlock, AgNumber, FsBlock};
use error::{Error, Result};
use format::btree::{BnoBt, Btree};
use format::extent::MAX_EXTENT_BLOCKS;
use journal::engine::Transaction;
use smallvec::SmallVec;

use super::alloc::{AgAllocArgs, AllocTarget};
use super::block_reservation::BlockReservation;
use super::contribution::Payer;
use crate::group::{Group, Groups, LockedAg};
use crate::owner::ExtentOwner;

/// A request for a claim. Lengths are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest {
    /// Target.
    pub target: AllocTarget,
    /// Minimum length, at least 1.
    pub min: u32,
    /// Maximum length; a claim is at most as long as a file extent can be.
    pub max: u32,
    /// Alignment: the first AG block is a multiple of it; 1 for none.
    pub align: u32,
}

/// The claimed extents of one AG: end block by first block.
#[derive(Debug, Default)]
pub struct ClaimedExtents {
    runs: BTreeMap<u32, u32>,
}

impl ClaimedExtents {
    /// The extent that starts at or before a block.
    fn before(&self, at: u32) -> Option<(u32, u32)> {
        self.runs.range(..=at).next_back().map(|(start, end)| (*start, *end))
    }

    fn insert(&mut self, start: u32, count: u32) {
        let mut run = (start, start + count);
        if let Some((first, end)) = self.before(start)
            && end == start
        {
            run.0 = first;
        }
        if let Some(end) = self.runs.remove(&run.1) {
            run.1 = end;
        }
        self.runs.insert(run.0, run.1);
    }

    fn remove(&mut self, start: u32, count: u32) {
        let Some((first, end)) = self.before(start).filter(|(_, end)| *end >= start + count) else {
            debug_assert!(false, "{count} blocks from {start} are not claimed");
            return;
        };
        self.runs.remove(&first);
        if first < start {
            self.runs.insert(first, start);
        }
        if start + count < end {
            self.runs.insert(start + count, end);
        }
    }

    /// Calls `each` for every part of a range that is not claimed, in order.
    pub(crate) fn clear(&self, start: u32, end: u32, each: &mut dyn FnMut(u32, u32)) {
        let mut at = start;
        let from = self.before(start).map_or(start, |(first, _)| first);
        for (&first, &end_of_run) in self.runs.range(from..end.max(from)) {
            if first > at {
                each(at, first - at);
            }
            at = at.max(end_of_run);
        }
        if at < end {
            each(at, end - at);
        }
    }
}

/// A claimed free extent. Dropping it releases the blocks.
#[derive(Debug)]
pub struct Claim {
    group: Arc<Group>,
    at: u32,
    count: u32,
}

impl Claim {
    /// First block.
    pub fn start(&self) -> FsBlock {
        self.group.fs_block(AgBlock(self.at))
    }

    /// Number of blocks.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Claims a range. The caller holds the AGF, and the range is free, not busy and not claimed.
    pub(crate) fn of(group: &Arc<Group>, at: u32, count: u32) -> Self {
        group.claimed.fetch_add(count, Relaxed);
        group.unusable.lock().claims.insert(at, count);
        Self { group: Arc::clone(group), at, count }
    }

    /// Allocation group.
    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// AG number.
    pub fn ag(&self) -> AgNumber {
        self.group.ag
    }

    /// Splits off the first `count` blocks, or all if there are fewer. So one extent can serve several small files.
    #[must_use = "the blocks are released when the result is dropped"]
    pub fn take_front(&mut self, count: u32) -> Self {
        let front = Self { group: Arc::clone(&self.group), at: self.at, count: count.min(self.count) };
        self.at += front.count;
        self.count -= front.count;
        front
    }

    /// Whether `next` starts where this one ends.
    fn touches(&self, next: &Self) -> bool {
        self.group.ag == next.group.ag && self.at + self.count == next.at
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.count > 0 {
            self.group.unclaim(self.at, self.count);
        }
    }
}

impl Group {
    fn unclaim(&self, at: u32, count: u32) {
        self.unusable.lock().claims.remove(at, count);
        self.released.fetch_add(1, Relaxed);
        self.claimed.fetch_sub(count, Relaxed);
    }
}

impl Groups {
    /// Claims a free extent. Nothing changes on the disk or in the log; all buffers that `tx`, a reader, joins are
    /// released again.
    ///
    /// # Errors
    /// No space: no AG has an extent of the minimum length. [`has_busy`](Self::has_busy) says whether forcing the log
    /// may help. Damage; I/O errors.
    ///
    /// # Locking
    /// One AGF at a time: first those that are not locked, in order of preference, then with waiting.
    pub fn claim(self: &Arc<Self>, tx: &mut Transaction, request: &ClaimRequest) -> Result<Claim> {
        self.faults.strike()?;
        let (first, only, near, exact) = self.first_group(request.target)?;
        let total = self.count();
        let count = if only { 1 } else { total };
        might_lock(Rank::Agf(0));
        let max = request.max.max(request.min).clamp(1, MAX_EXTENT_BLOCKS as u32); // 21 bits
        let want = |group: u32| AgAllocArgs {
            near: near.filter(|_| group == first.get()),
            exact,
            min: request.min.max(1),
            max,
            align: request.align.max(1),
            within: None,
            reuse_busy: false,
        };
        if request.min > max {
            return Err(Error::NoSpace { what: "a run of blocks longer than the maximum extent" });
        }
        for waits in [false, true] {
            for ag in (0..count).map(|n| (first.get() + n) % total) {
                let Some(group) = self.get(AgNumber(ag)) else { continue };
                if !waits && !group.may_have(&want(ag)) {
                    continue;
                }
                let locked = if waits { Some(group.lock(tx)?) } else { group.try_lock(tx)? };
                let found = locked.map(|locked| locked.claim(tx, &want(ag))).transpose();
                tx.release_clean();
                if let Some(claim) = found?.flatten() {
                    if base::simulation::is_simulated() {
                        debug_assert_eq!(self.overclaimed(), 0, "blocks are claimed that are not reserved");
                    }
                    return Ok(claim);
                }
            }
        }
        Err(Error::NoSpace { what: "file data" })
    }

    /// Whether there are busy extents: forcing the log makes them usable for data.
    pub fn has_busy(&self) -> bool {
        self.iter().any(|group| group.busy_count.load(Acquire) > 0)
    }

    /// Number of releases of busy and claimed extents: if it has not changed, nothing was released in between.
    pub fn released(&self) -> u64 {
        self.iter().map(|group| group.released.load(Relaxed)).sum()
    }

    /// Number of claimed blocks.
    pub fn claimed(&self) -> u64 {
        self.iter().map(|group| u64::from(group.claimed.load(Relaxed))).sum()
    }

    /// Allocates claimed extents and records their owner; the claims end. Adjacent claims are allocated together, so
    /// pass them in order.
    ///
    /// Claims of several AGs come in ascending order. The first call of a transaction locks all these AGs, and others
    /// if they lack space for the rest of `reservation`, which the transaction may allocate for the tree of a map.
    /// Split off beforehand what is reserved for other claims, as these need no space.
    ///
    /// # Errors
    /// Damage; no space, if less was reserved and the volume has no more.
    pub fn take_claimed(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        claims: impl IntoIterator<Item = Claim>,
        owner: ExtentOwner,
    ) -> Result<()> {
        let claims: SmallVec<[Claim; 8]> = claims.into_iter().collect();
        let count = claims.iter().map(|claim| claim.count).sum();
        reservation.cover(count)?;
        if reservation.locked_ags.is_empty() {
            let groups: SmallVec<[AgNumber; 2]> = claims.iter().map(Claim::ag).collect();
            self.lock_claimed_groups(tx, reservation, groups, reservation.left() - count)?;
        }
        let mut run: Option<Claim> = None;
        for mut claim in claims {
            match &mut run {
                Some(run) if run.touches(&claim) => {
                    run.count += std::mem::take(&mut claim.count);
                }
                _ => {
                    if let Some(run) = run.replace(claim) {
                        take_run(tx, reservation, run, owner)?;
                    }
                }
            }
        }
        run.map_or(Ok(()), |run| take_run(tx, reservation, run, owner))
    }
}

/// Allocates one claimed extent.
fn take_run(
    tx: &mut Transaction,
    reservation: &mut BlockReservation<'_>,
    run: Claim,
    owner: ExtentOwner,
) -> Result<()> {
    if run.count == 0 {
        return Ok(());
    }
    let group = Arc::clone(&run.group);
    let locked = group.lock(tx)?;
    reservation.note_locked(group.ag);
    locked.fix_freelist(tx)?;
    let free = locked.cursor::<BnoBt>().lookup_le(tx, run.at)?;
    let free = free.map(|free| (free.startblock.get(), free.blockcount.get()));
    let end = u64::from(run.at) + u64::from(run.count);
    let Some(free) = free.filter(|(start, count)| u64::from(*start) + u64::from(*count) >= end) else {
        let expected =
            format_args!("{} free blocks from {:#x}, as when they were claimed", run.count, run.at);
        let found = format_args!("{free:x?}");
        return Err(group.damage(AgBlock(run.at), (BnoBt::NAME, "record"), expected, found));
    };
    locked.remove_free(tx, free, run.at, run.count)?;
    locked.map_owner(tx, AgBlock(run.at), run.count, owner)?;
    reservation.spend(run.count);
    // They are no longer free: no search finds them in between.
    let count = run.count;
    drop(run);
    locked.update_contribution(tx, count);
    Ok(())
}

impl LockedAg<'_> {
    /// Claims blocks of this AG; `None` if it has no such extent.
    fn claim(&self, tx: &mut Transaction, want: &AgAllocArgs) -> Result<Option<Claim>> {
        let allocatable = self.allocatable(tx, Payer::Reservation);
        if allocatable < want.min {
            return Ok(None);
        }
        let want = AgAllocArgs { max: want.max.min(allocatable), ..*want };
        let Some(found) = self.find(tx, &want)? else { return Ok(None) };
        Ok(Some(Claim::of(self.group, found.at, found.count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(claims: &ClaimedExtents, start: u32, end: u32) -> Vec<(u32, u32)> {
        let mut parts = Vec::new();
        claims.clear(start, end, &mut |at, count| parts.push((at, count)));
        parts
    }

    #[test]
    fn claimed_extents_merge_split_and_are_skipped() {
        let mut claims = ClaimedExtents::default();
        claims.insert(10, 5);
        claims.insert(20, 5);
        claims.insert(15, 5);
        assert_eq!(claims.runs.len(), 1);
        assert_eq!(parts(&claims, 0, 40), [(0, 10), (25, 15)]);
        assert_eq!(parts(&claims, 12, 25), []);
        claims.remove(12, 3);
        assert_eq!(parts(&claims, 0, 40), [(0, 10), (12, 3), (25, 15)]);
        assert_eq!(parts(&claims, 11, 14), [(12, 2)]);
        claims.remove(10, 2);
        claims.remove(15, 10);
        assert!(claims.runs.is_empty());
        assert_eq!(parts(&claims, 7, 9), [(7, 2)]);
    }
}
