//! Which group, and which blocks.
//!
//! A transaction that holds the AGF of a group can only wait for those of higher groups. So it locks all that it takes
//! blocks of before it takes the first: one group with room for all that is reserved; or, where there is no such group,
//! the lowest ones, as many as have that much room together. What is reserved is promised by some groups. The holder
//! of an AGF keeps others from changing the group's free space, but claims end without it: room can still appear in a
//! group that was looked at already. Only a second look with all AGFs held finds all that is reserved.
//!
//! Within a group: the blocks that were asked for, if they are free; else the nearest extent that is long enough, among
//! some on both sides; else the shortest that is long enough; else the longest there is.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use base::lock::{Rank, might_lock};
use base::{AgBlock, AgNumber, FsBlock};
use format::btree::{BnoBt, CntBt, FreeExtent};
use journal::engine::{Error, Transaction};
use smallvec::SmallVec;

use super::block_reservation::BlockReservation;
use super::change::Free;
use super::contribution::Payer;
use crate::group::{Group, Groups, LockedAg, agf};
use crate::owner::ExtentOwner;

/// How many free extents are looked at on each side of the wanted place.
const NEAR_MAX: usize = 24;
/// How many free extents are looked at by size, where alignment or busy blocks make the first ones unfit.
const SIZES_MAX: usize = 64;

/// Where blocks should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocTarget {
    /// In this group if it has room, else in any.
    Ag(AgNumber),
    /// In this group or nowhere.
    OnlyAg(AgNumber),
    /// AllocTarget this block, in its group if it has room, else in any.
    Block(FsBlock),
    /// AllocTarget this block, in its group or nowhere.
    OnlyNear(FsBlock),
    /// At this block or nowhere.
    Exact(FsBlock),
}

/// What is to be allocated. Lengths are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct AllocRequest {
    /// Where.
    pub target: AllocTarget,
    /// Shortest extent that will do, at least 1.
    pub min: u32,
    /// Longest extent that is of use.
    pub max: u32,
    /// The extent begins at a multiple of this AG block; 1 for any.
    pub align: u32,
    /// Whose it will be.
    pub owner: ExtentOwner,
    /// It will hold a user's data, which reaches the disk past the log: blocks that were just freed are not for it.
    pub data: bool,
}

/// What is wanted of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgAllocArgs {
    pub near: Option<u32>,
    pub exact: bool,
    pub min: u32,
    pub max: u32,
    pub align: u32,
    /// It must lie between these blocks.
    pub within: Option<(u32, u32)>,
    /// Where nothing else is left, blocks may be used whose freeing is not stable yet.
    pub reuse_busy: bool,
}

/// Blocks that were found, and the free extent that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocCandidate {
    pub free: Free,
    pub at: u32,
    pub count: u32,
}

/// Whether a change can do with the groups that it has locked, if they have the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suitability {
    /// It needs something of another one.
    NotYet,
    /// With all of them.
    Together,
    /// With all, and with the last one alone.
    Alone,
}

impl Suitability {
    fn together(suits: bool) -> Self {
        if suits { Self::Together } else { Self::NotYet }
    }
}

impl Groups {
    /// Allocates one extent and writes down its owner.
    ///
    /// The transaction may hold AGFs that it locked through the same `reservation`, and no others. Its first allocation
    /// locks groups that have room for all that is reserved: later ones then find single blocks for sure.
    ///
    /// # Errors
    /// No space: nowhere an extent of the shortest length. The groups are whole then, and the transaction can be
    /// committed.
    pub fn alloc_extent(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        request: &AllocRequest,
    ) -> Result<(FsBlock, u32), Error> {
        self.faults.strike()?;
        let (first, only, near, exact) = self.first_group(request.target)?;
        let (min, max) = (request.min.max(1), request.max.max(request.min).max(1));
        let want = |ag: AgNumber| AgAllocArgs {
            near: near.filter(|_| ag == first),
            exact,
            min,
            max,
            align: request.align.max(1),
            within: None,
            reuse_busy: !request.data,
        };
        reservation.cover(min)?;
        // Blocks that are wanted, but not needed, do not count.
        let later = reservation.left().saturating_sub(max);
        if reservation.held.is_empty() && !only {
            self.hold_for(tx, reservation, (first, &want), min + later)?;
        }
        // The wanted one, the others that are held, and then higher ones, which can be waited for.
        let last = reservation.held.last().copied();
        let mut in_turn = if only { SmallVec::from_elem(first, 1) } else { reservation.held.clone() };
        in_turn.sort_unstable_by_key(|ag| (*ag != first, *ag));
        let above = if only { self.count() } else { last.map_or(0, |last| last.get() + 1) };
        for ag in in_turn.into_iter().chain((above..self.count()).map(AgNumber)) {
            let can_lock = last.is_none_or(|last| last <= ag) || reservation.held.contains(&ag);
            let Some(group) = self.get(ag).filter(|_| can_lock) else { continue };
            let open = group.lock(tx)?;
            reservation.hold(ag);
            let most = self.room_beyond(tx, reservation, later)?.min(reservation.left()).max(min);
            let want = AgAllocArgs { max: max.min(most), ..want(ag) };
            if let Some((at, count)) = open.alloc(tx, &want, request.owner, Payer::Reservation)? {
                reservation.spend(count);
                return Ok((group.fs_block(at), count));
            }
        }
        Err(Error::NoSpace { what: "an extent" })
    }

    /// What the groups that are held have room for, less `later` blocks.
    fn room_beyond(
        &self,
        tx: &mut Transaction,
        reservation: &BlockReservation<'_>,
        later: u32,
    ) -> Result<u32, Error> {
        let mut room = 0u32;
        for group in reservation.held.iter().filter_map(|ag| self.get(*ag)) {
            room = room.saturating_add(group.lock(tx)?.room(tx, Payer::Reservation));
        }
        Ok(room.saturating_sub(later))
    }

    /// Locks groups that have room for `need` blocks, of which one has what is wanted first.
    fn hold_for(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        (first, want): (AgNumber, &dyn Fn(AgNumber) -> AgAllocArgs),
        need: u32,
    ) -> Result<(), Error> {
        might_lock(Rank::Agf(0));
        let total = self.count();
        // Without waiting for anybody.
        for ag in (0..total).map(|n| AgNumber((first.get() + n) % total)) {
            let wanted = want(ag);
            let suits =
                |group: &&_| Group::may_have(group, &wanted) && Group::unclaimed_promise(group) >= need;
            let Some(group) = self.get(ag).filter(|group| suits(&&***group)) else { continue };
            if let Some(open) = group.try_lock(tx)? {
                if open.room(tx, Payer::Reservation) >= need && open.find(tx, &wanted)?.is_some() {
                    reservation.hold(ag);
                    return Ok(());
                }
                open.release(tx, None);
            }
        }
        let mut found = false;
        self.hold_from_lowest(tx, reservation, need, &mut |tx, open| {
            let here =
                open.room(tx, Payer::Reservation) > 0 && open.find(tx, &want(open.group.ag))?.is_some();
            found |= here;
            Ok(if here { Suitability::Alone } else { Suitability::together(found) })
        })
    }

    /// Locks groups from the lowest on, until one has room for `need` blocks alone, or all of them have together.
    /// `suits` is asked of each.
    ///
    /// # Errors
    /// No space; the transaction holds no AGF then.
    pub(super) fn hold_from_lowest(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        need: u32,
        suits: &mut dyn FnMut(&mut Transaction, LockedAg<'_>) -> Result<Suitability, Error>,
    ) -> Result<(), Error> {
        let (mut room, mut opened) = (0u32, Vec::new());
        for group in self.iter() {
            let open = group.lock(tx)?;
            let here = open.room(tx, Payer::Reservation);
            room = room.saturating_add(here);
            let suits = suits(tx, open)?;
            let alone = suits == Suitability::Alone && here >= need;
            if alone && let Some(first) = opened.first() {
                LockedAg::release(first, tx, Some(&open));
                opened.clear();
            }
            opened.push(open);
            if alone || (suits != Suitability::NotYet && room >= need) {
                opened.iter().for_each(|open| reservation.hold(open.group.ag));
                return Ok(());
            }
        }
        // ClaimedExtents that ended meanwhile gave room to groups that were looked at already. From now on claims can
        // only end.
        let (mut room, mut together) = (0u32, false);
        for open in &opened {
            room = room.saturating_add(open.room(tx, Payer::Reservation));
            together |= suits(tx, *open)? != Suitability::NotYet;
        }
        if together && room >= need {
            opened.iter().for_each(|open| reservation.hold(open.group.ag));
            return Ok(());
        }
        if let Some(first) = opened.first() {
            first.release(tx, None);
        }
        Err(Error::NoSpace { what: "an extent" })
    }

    /// Locks groups of which the transaction is about to take what is claimed, and where they have no room for `then`
    /// more blocks, others besides. The transaction holds no AGF.
    ///
    /// # Errors
    /// No space: less was reserved.
    pub(super) fn hold_with(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        mut groups: SmallVec<[AgNumber; 2]>,
        then: u32,
    ) -> Result<(), Error> {
        groups.sort_unstable();
        groups.dedup();
        let Some(last) = groups.last().copied() else { return Ok(()) };
        might_lock(Rank::Agf(0));
        let (mut room, mut opened) = (0u32, SmallVec::<[LockedAg<'_>; 2]>::new());
        for group in groups.iter().filter_map(|ag| self.get(*ag)) {
            let open = group.lock(tx)?;
            room = room.saturating_add(open.room(tx, Payer::Reservation));
            opened.push(open);
        }
        if room >= then {
            reservation.held = groups;
            return Ok(());
        }
        if let Some(first) = opened.first() {
            first.release(tx, None);
        }
        self.hold_from_lowest(tx, reservation, then, &mut |_, open| {
            let alone = groups.len() == 1 && open.group.ag == last;
            Ok(if alone { Suitability::Alone } else { Suitability::together(open.group.ag >= last) })
        })
    }

    /// The group to begin with; whether it is the only one; the block to be near; whether exactly there.
    pub(super) fn first_group(
        &self,
        target: AllocTarget,
    ) -> Result<(AgNumber, bool, Option<u32>, bool), Error> {
        let place = |block| self.of_block(block, 1).map(|(group, at)| (group.ag, at.get()));
        Ok(match target {
            AllocTarget::Ag(ag) => (ag, false, None, false),
            AllocTarget::OnlyAg(ag) => (ag, true, None, false),
            // A hint that makes no sense is no reason to fail.
            AllocTarget::Block(block) => match place(block) {
                Ok((ag, at)) => (ag, false, Some(at), false),
                Err(_) => (AgNumber(0), false, None, false),
            },
            AllocTarget::OnlyNear(block) => place(block).map(|(ag, at)| (ag, true, Some(at), false))?,
            AllocTarget::Exact(block) => place(block).map(|(ag, at)| (ag, true, Some(at), true))?,
        })
    }
}

impl Group {
    /// Whether a look at the group is worth its lock.
    pub(crate) fn may_have(&self, want: &AgAllocArgs) -> bool {
        let unclaimed = self.freeblks.load(Relaxed).saturating_sub(self.claimed.load(Relaxed));
        self.longest.load(Relaxed).min(unclaimed) >= want.min
    }
}

impl LockedAg<'_> {
    /// Allocates in this group; `None` where it has no such extent.
    pub(crate) fn alloc(
        &self,
        tx: &mut Transaction,
        want: &AgAllocArgs,
        owner: ExtentOwner,
        payer: Payer,
    ) -> Result<Option<(AgBlock, u32)>, Error> {
        // Before anything changes: is there such an extent at all?
        if self.room(tx, payer) < want.min || self.find(tx, want)?.is_none() {
            return Ok(None);
        }
        self.fix_list(tx)?;
        let want = AgAllocArgs { max: want.max.min(self.room(tx, payer)).max(want.min), ..*want };
        let Some(found) = self.find(tx, &want)? else { return Ok(None) };
        self.take_out(tx, found.free, found.at, found.count)?;
        self.map_owner(tx, AgBlock(found.at), found.count, owner)?;
        let paid = match payer {
            Payer::Reservation => found.count,
            Payer::Group => {
                self.group.metadata.draw(found.count);
                0
            }
        };
        self.settle(tx, paid);
        Ok(Some((AgBlock(found.at), found.count)))
    }

    /// Allocates one block for a tree that has blocks set aside: inode trees and reference counts.
    ///
    /// # Errors
    /// No space: neither set aside nor otherwise free in this group.
    pub fn alloc_tree_block(
        &self,
        tx: &mut Transaction,
        near: AgBlock,
        owner: ExtentOwner,
    ) -> Result<AgBlock, Error> {
        self.group.faults.strike()?;
        let near = Some(near.get());
        let want =
            AgAllocArgs { near, exact: false, min: 1, max: 1, align: 1, within: None, reuse_busy: true };
        let block = self.alloc(tx, &want, owner, Payer::Group)?;
        block.map(|(block, _)| block).ok_or(Error::NoSpace { what: "a tree of an allocation group" })
    }

    /// Finds free blocks. Changes nothing.
    pub(crate) fn find(
        &self,
        tx: &mut Transaction,
        want: &AgAllocArgs,
    ) -> Result<Option<AllocCandidate>, Error> {
        let found = self.find_with(tx, want, false)?;
        if found.is_none() && want.reuse_busy && self.group.busy_count.load(Relaxed) > 0 {
            return self.find_with(tx, want, true);
        }
        Ok(found)
    }

    fn find_with(
        &self,
        tx: &mut Transaction,
        want: &AgAllocArgs,
        busy_too: bool,
    ) -> Result<Option<AllocCandidate>, Error> {
        if let Some(near) = want.near {
            let found = self.find_near(tx, want, near, busy_too)?;
            if found.is_some() || want.exact {
                return Ok(found);
            }
        }
        let found = self.find_by_size(tx, want, busy_too)?;
        if found.is_some() || want.min > 1 {
            return Ok(found);
        }
        self.find_any(tx, want, busy_too)
    }

    /// The first block that may be used, behind the wanted place or else before it. The searches above give up after a
    /// few extents; where free space is in single blocks, all that they look at may be claimed or busy.
    fn find_any(
        &self,
        tx: &mut Transaction,
        want: &AgAllocArgs,
        busy_too: bool,
    ) -> Result<Option<AllocCandidate>, Error> {
        if self.get(tx, agf!(freeblks)) <= self.group.claimed.load(Relaxed) {
            return Ok(None);
        }
        let near = want.near.unwrap_or(0);
        for (from, to) in [(near, u32::MAX), (0, near)] {
            let mut bno = self.cursor::<BnoBt>();
            let mut free = bno.lookup_ge(tx, from)?;
            while let Some(extent) = free.filter(|extent| extent.startblock.get() < to) {
                if let Some(found) = self.fit(&extent, want, None, busy_too) {
                    return Ok(Some(found));
                }
                free = bno.next(tx)?;
            }
        }
        Ok(None)
    }

    /// The nearest place for an extent of full length; with `exact`, what there is at that place.
    fn find_near(
        &self,
        tx: &mut Transaction,
        want: &AgAllocArgs,
        near: u32,
        busy_too: bool,
    ) -> Result<Option<AllocCandidate>, Error> {
        let mut bno = self.cursor::<BnoBt>();
        let here = bno.lookup_le(tx, near)?;
        if want.exact {
            let fits = here.and_then(|free| self.fit(&free, want, Some(near), busy_too));
            return Ok(fits.filter(|found| found.at == near));
        }
        let full = |found: &AllocCandidate| found.count == want.max;
        let mut best = here.and_then(|free| self.fit(&free, want, Some(near), busy_too)).filter(full);
        let distance = |found: &AllocCandidate| found.at.abs_diff(near);
        let mut consider = |found: Option<AllocCandidate>| {
            if let Some(found) = found.filter(full)
                && best.is_none_or(|best| distance(&found) < distance(&best))
            {
                best = Some(found);
            }
            best
        };
        let mut right = bno.clone();
        for _ in 0..NEAR_MAX {
            let Some(free) = right.next(tx)? else { break };
            let behind = free.startblock.get().abs_diff(near);
            if consider(self.fit(&free, want, Some(near), busy_too)).is_some_and(|b| distance(&b) <= behind) {
                break;
            }
        }
        for _ in 0..NEAR_MAX {
            let Some(free) = bno.prev(tx)? else { break };
            let end = free.startblock.get().saturating_add(free.blockcount.get());
            let before = near.saturating_sub(end);
            if consider(self.fit(&free, want, Some(near), busy_too)).is_some_and(|b| distance(&b) <= before) {
                break;
            }
        }
        Ok(best)
    }

    /// The shortest extent that is long enough, else the longest.
    fn find_by_size(
        &self,
        tx: &mut Transaction,
        want: &AgAllocArgs,
        busy_too: bool,
    ) -> Result<Option<AllocCandidate>, Error> {
        let mut cnt = self.cursor::<CntBt>();
        let mut free = cnt.lookup_ge(tx, (want.max, 0))?;
        for _ in 0..SIZES_MAX {
            let Some(extent) = free else { break };
            let found = self.fit(&extent, want, want.near, busy_too);
            if let Some(found) = found.filter(|found| found.count == want.max) {
                return Ok(Some(found));
            }
            free = cnt.next(tx)?;
        }
        let mut best: Option<AllocCandidate> = None;
        let mut free = cnt.last(tx)?;
        for _ in 0..SIZES_MAX {
            let Some(extent) = free else { break };
            let least = best.map_or(want.min, |best| best.count + 1);
            if extent.blockcount.get() < least {
                break;
            }
            let found = self.fit(&extent, want, want.near, busy_too);
            if let Some(found) = found.filter(|found| found.count >= least) {
                best = Some(found);
            }
            free = cnt.prev(tx)?;
        }
        Ok(best)
    }

    /// The best place within a free extent: long enough, aligned, not busy, as near as can be.
    fn fit(
        &self,
        free: &FreeExtent,
        want: &AgAllocArgs,
        near: Option<u32>,
        busy_too: bool,
    ) -> Option<AllocCandidate> {
        let whole = (free.startblock.get(), free.blockcount.get());
        // What a damaged tree says must not lead outside of the group.
        if !self.group.holds(AgBlock(whole.0), whole.1) {
            return None;
        }
        let mut best: Option<AllocCandidate> = None;
        let mut part = |start: u32, count: u32| {
            let Some((start, count)) = clip((start, count), want.within) else { return };
            let Some((at, count)) = place(start, count, want, near) else { return };
            let better = |old: AllocCandidate| match (near, old.count.cmp(&count)) {
                (_, Ordering::Less) => true,
                (Some(near), Ordering::Equal) => at.abs_diff(near) < old.at.abs_diff(near),
                _ => false,
            };
            if best.is_none_or(better) {
                best = Some(AllocCandidate { free: whole, at, count });
            }
        };
        self.group.clear_parts(whole, busy_too, &mut part);
        best
    }
}

/// What of a run lies between two blocks.
fn clip((start, count): (u32, u32), within: Option<(u32, u32)>) -> Option<(u32, u32)> {
    let Some((from, to)) = within else { return Some((start, count)) };
    let (first, end) = (start.max(from), (start + count).min(to));
    (first < end).then(|| (first, end - first))
}

/// Places an extent within a run of free blocks: as long as is of use, then as near to `near` as alignment allows.
fn place(start: u32, count: u32, want: &AgAllocArgs, near: Option<u32>) -> Option<(u32, u32)> {
    let end = start + count;
    let first = start.checked_next_multiple_of(want.align).filter(|first| *first < end)?;
    let longest = (end - first).min(want.max);
    if longest < want.min {
        return None;
    }
    let Some(near) = near.filter(|near| *near > first) else { return Some((first, longest)) };
    if want.exact {
        return (near < end && near.is_multiple_of(want.align) && end - near >= want.min)
            .then(|| (near, (end - near).min(want.max)));
    }
    let at = near.min(end - longest);
    Some((at - at % want.align, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANT: AgAllocArgs =
        AgAllocArgs { near: None, exact: false, min: 2, max: 4, align: 1, within: None, reuse_busy: false };

    #[test]
    fn an_extent_is_placed_near_aligned_and_within() {
        assert_eq!(place(10, 20, &WANT, None), Some((10, 4)));
        assert_eq!(place(10, 20, &WANT, Some(5)), Some((10, 4)));
        assert_eq!(place(10, 20, &WANT, Some(15)), Some((15, 4)));
        assert_eq!(place(10, 20, &WANT, Some(29)), Some((26, 4)));
        assert_eq!(place(10, 20, &WANT, Some(500)), Some((26, 4)));
        assert_eq!(place(10, 3, &WANT, None), Some((10, 3)));
        assert_eq!(place(10, 1, &WANT, None), None);
        let aligned = AgAllocArgs { align: 8, ..WANT };
        assert_eq!(place(10, 20, &aligned, Some(23)), Some((16, 4)));
        assert_eq!(place(10, 20, &aligned, Some(25)), Some((24, 4)));
        assert_eq!(place(10, 6, &aligned, None), None);
        assert_eq!(place(10, 7, &aligned, None), None);
        assert_eq!(place(10, 8, &aligned, None), Some((16, 2)));
        let exact = AgAllocArgs { exact: true, ..WANT };
        assert_eq!(place(10, 20, &exact, Some(28)), Some((28, 2)));
        assert_eq!(place(10, 20, &exact, Some(29)), None);
        assert_eq!(place(u32::MAX - 3, 3, &AgAllocArgs { align: 16, ..WANT }, None), None);
    }

    #[test]
    fn every_place_lies_within_the_run_and_is_aligned() {
        for (start, count, align) in
            (0..40).flat_map(|s| (1..20).flat_map(move |c| (1..9).map(move |a| (s, c, a))))
        {
            for near in [None, Some(0), Some(7), Some(30), Some(90)] {
                let want = AgAllocArgs { align, ..WANT };
                if let Some((at, got)) = place(start, count, &want, near) {
                    assert!(at >= start && at + got <= start + count && at % align == 0);
                    assert!((2..=4).contains(&got));
                }
            }
        }
    }
}
