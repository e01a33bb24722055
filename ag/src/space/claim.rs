//! Free blocks that are kept for somebody, in memory alone: data is on its way to them.
//!
//! Whoever writes new blocks of a file claims them first, writes, and takes them out of free space last, in the
//! transaction that maps them: see docs/contents.md. After a power cut a claim never was.
//!
//! | part | is |
//! |---|---|
//! | [`ClaimedExtents`] | what is claimed in one group, as runs that do not touch |
//! | [`Claim`] | the proof that a run is claimed, by whom it is given back |
//! | [`Groups::claim`] | finding and keeping |
//! | [`Groups::take_claimed`] | out of free space, for good |
//!
//! # Invariants
//! - A claimed block is free in both trees, and no search finds it, whether that may reuse busy blocks or not; the AGFL
//!   is not refilled from it.
//! - No block is claimed twice. ClaimedExtents of a group grow under its AGF alone; they may shrink at any time.
//! - Claimed blocks count as used in what a group may still give. The volume's counter of blocks that may be reserved
//!   knows nothing of them: who claims has reserved as many, or claims no more than are free beside all reservations.
//!
//! # Locking
//! With the busy extents, under their lock of rank `Group`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use base::lock::{Rank, might_lock};
use base::{AgBlock, AgNumber, FsBlock};
use format::btree::{BnoBt, Btree};
use format::extent::MAX_EXTENT_BLOCKS;
use journal::engine::{Error, Transaction};
use smallvec::SmallVec;

use super::alloc::{AgAllocArgs, AllocTarget};
use super::block_reservation::BlockReservation;
use super::contribution::Payer;
use crate::group::{Group, Groups, LockedAg};
use crate::owner::ExtentOwner;

/// What is to be claimed. Lengths are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest {
    /// Where.
    pub target: AllocTarget,
    /// Shortest run that will do, at least 1.
    pub min: u32,
    /// Longest run that is of use; no more than an extent of a file can have is claimed.
    pub max: u32,
    /// The run begins at a multiple of this AG block; 1 for any.
    pub align: u32,
}

/// What is claimed in one group: by its first block, the block behind the run.
#[derive(Debug, Default)]
pub struct ClaimedExtents {
    runs: BTreeMap<u32, u32>,
}

impl ClaimedExtents {
    /// The run before or at a block.
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

    /// Hands every part of a range that is not claimed to `each`, in order.
    pub(crate) fn clear(&self, start: u32, end: u32, each: &mut dyn FnMut(u32, u32)) {
        let mut at = start;
        let from = self.before(start).map_or(start, |(first, _)| first);
        for (&first, &behind) in self.runs.range(from..end.max(from)) {
            if first > at {
                each(at, first - at);
            }
            at = at.max(behind);
        }
        if at < end {
            each(at, end - at);
        }
    }
}

/// A run of free blocks that nobody else gets. Dropped, they are free for all again.
#[derive(Debug)]
pub struct Claim {
    group: Arc<Group>,
    at: u32,
    count: u32,
}

impl Claim {
    /// The first block.
    pub fn start(&self) -> FsBlock {
        self.group.fs_block(AgBlock(self.at))
    }

    /// Blocks.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// ClaimedExtents a range of which the caller, who holds the AGF, knows that it is free and nobody's.
    pub(crate) fn of(group: &Arc<Group>, at: u32, count: u32) -> Self {
        group.claimed.fetch_add(count, Relaxed);
        group.unusable.lock().claims.insert(at, count);
        Self { group: Arc::clone(group), at, count }
    }

    /// The group itself.
    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// The group in which they lie.
    pub fn ag(&self) -> AgNumber {
        self.group.ag
    }

    /// Splits so many blocks off at the front, or all there are: so that one run serves several small files.
    #[must_use = "what is split off is given back when it is dropped"]
    pub fn take_front(&mut self, count: u32) -> Self {
        let front = Self { group: Arc::clone(&self.group), at: self.at, count: count.min(self.count) };
        self.at += front.count;
        self.count -= front.count;
        front
    }

    /// Whether `next` begins where this one ends.
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
    /// Keeps free blocks for somebody. Nothing is changed on the disk, nor logged; all that `tx`, a reader, joins is
    /// released again.
    ///
    /// # Errors
    /// No space: nowhere a run of the shortest length. [`has_busy`](Self::has_busy) tells whether forcing the log may
    /// help. Damage; what reading meets.
    ///
    /// # Locking
    /// One AGF at a time: first those that nobody holds, in the order in which they are wanted, then waiting.
    pub fn claim(self: &Arc<Self>, tx: &mut Transaction, request: &ClaimRequest) -> Result<Claim, Error> {
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
            return Err(Error::NoSpace { what: "a run of blocks that is longer than an extent can be" });
        }
        for waits in [false, true] {
            for ag in (0..count).map(|n| (first.get() + n) % total) {
                let Some(group) = self.get(AgNumber(ag)) else { continue };
                if !waits && !group.may_have(&want(ag)) {
                    continue;
                }
                let open = if waits { Some(group.lock(tx)?) } else { group.try_lock(tx)? };
                let found = open.map(|open| open.claim(tx, &want(ag))).transpose();
                tx.release_clean();
                if let Some(claim) = found?.flatten() {
                    if base::simulation::is_simulated() {
                        debug_assert_eq!(
                            self.overclaimed(),
                            0,
                            "blocks are claimed that nobody has reserved"
                        );
                    }
                    return Ok(claim);
                }
            }
        }
        Err(Error::NoSpace { what: "data that is about to be written" })
    }

    /// Whether there are blocks that are free and wait for the log: forcing it makes them usable for data.
    pub fn has_busy(&self) -> bool {
        self.iter().any(|group| group.busy_count.load(Acquire) > 0)
    }

    /// How often blocks that were busy or claimed ceased to be: the same number twice says that none did in between.
    pub fn released(&self) -> u64 {
        self.iter().map(|group| group.released.load(Relaxed)).sum()
    }

    /// Blocks that are claimed.
    pub fn claimed(&self) -> u64 {
        self.iter().map(|group| u64::from(group.claimed.load(Relaxed))).sum()
    }

    /// Takes claimed blocks out of free space, and writes down their owner; the claims end. Those that touch are taken
    /// at once, so they are best handed over in order.
    ///
    /// ClaimedExtents of several groups come in ascending order. The first call of a transaction locks all these
    /// groups, and others where they lack room for what the transaction may take besides: what is left of
    /// `reservation`, for the tree of a map. What is reserved for other claims, which need no room, is split off
    /// before.
    ///
    /// # Errors
    /// Damage; no space, where less was reserved, and there is no more to be had.
    pub fn take_claimed(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        claims: impl IntoIterator<Item = Claim>,
        owner: ExtentOwner,
    ) -> Result<(), Error> {
        let claims: SmallVec<[Claim; 8]> = claims.into_iter().collect();
        let count = claims.iter().map(|claim| claim.count).sum();
        reservation.cover(count)?;
        if reservation.held.is_empty() {
            let groups: SmallVec<[AgNumber; 2]> = claims.iter().map(Claim::ag).collect();
            self.hold_with(tx, reservation, groups, reservation.left() - count)?;
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

/// Takes one run of claimed blocks.
fn take_run(
    tx: &mut Transaction,
    reservation: &mut BlockReservation<'_>,
    run: Claim,
    owner: ExtentOwner,
) -> Result<(), Error> {
    if run.count == 0 {
        return Ok(());
    }
    let group = Arc::clone(&run.group);
    let open = group.lock(tx)?;
    reservation.hold(group.ag);
    open.fix_list(tx)?;
    let free = open.cursor::<BnoBt>().lookup_le(tx, run.at)?;
    let free = free.map(|free| (free.startblock.get(), free.blockcount.get()));
    let end = u64::from(run.at) + u64::from(run.count);
    let Some(free) = free.filter(|(start, count)| u64::from(*start) + u64::from(*count) >= end) else {
        let expected =
            format_args!("{} free blocks from {:#x}, as when they were claimed", run.count, run.at);
        let found = format_args!("{free:x?}");
        return Err(group.damage(AgBlock(run.at), (BnoBt::NAME, "record"), expected, found));
    };
    open.take_out(tx, free, run.at, run.count)?;
    open.map_owner(tx, AgBlock(run.at), run.count, owner)?;
    reservation.spend(run.count);
    // They are not free any more: nobody finds them in between.
    let count = run.count;
    drop(run);
    open.settle(tx, count);
    Ok(())
}

impl LockedAg<'_> {
    /// ClaimedExtents blocks of this group; `None` where it has no such run.
    fn claim(&self, tx: &mut Transaction, want: &AgAllocArgs) -> Result<Option<Claim>, Error> {
        let room = self.room(tx, Payer::Reservation);
        if room < want.min {
            return Ok(None);
        }
        let want = AgAllocArgs { max: want.max.min(room), ..*want };
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
    fn runs_join_split_and_are_left_out() {
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
