//! Which group, and which blocks.
//!
//! Within a group: the blocks that were asked for, if they are free; else the nearest extent that is long enough, among
//! some on both sides; else the shortest that is long enough; else the longest there is.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::lock::{Rank, may_wait};
use base::{AgBlock, AgNumber, FsBlock};
use format::btree::{BnoBt, CntBt, FreeExtent};
use log::engine::{Error, Transaction};

use super::change::Free;
use super::reservation::BlockReservation;
use crate::group::{Group, Groups, OpenAg, agf};
use crate::owner::Owner;

/// How many free extents are looked at on each side of the wanted place.
const NEAR_MAX: usize = 24;
/// How many free extents are looked at by size, where alignment or busy blocks make the first ones unfit.
const SIZES_MAX: usize = 64;

/// How often lower groups are tried that others hold, and the pause in between: together far longer than a change holds
/// a group that waits for nobody.
const TURNS: u32 = 500;
const PAUSE: Duration = Duration::from_micros(100);

/// Where blocks should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// In this group if it has room, else in any.
    Ag(AgNumber),
    /// In this group or nowhere.
    OnlyAg(AgNumber),
    /// Near this block, in its group if it has room, else in any.
    Block(FsBlock),
    /// Near this block, in its group or nowhere.
    OnlyNear(FsBlock),
    /// At this block or nowhere.
    Exact(FsBlock),
}

/// What is to be allocated. Lengths are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct AllocRequest {
    /// Where.
    pub near: Near,
    /// Shortest extent that will do, at least 1.
    pub min: u32,
    /// Longest extent that is of use.
    pub max: u32,
    /// The extent begins at a multiple of this AG block; 1 for any.
    pub align: u32,
    /// Whose it will be.
    pub owner: Owner,
    /// It will hold a user's data, which reaches the disk past the log: blocks that were just freed are not for it.
    pub data: bool,
}

/// What is wanted of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
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
pub(crate) struct Found {
    pub free: Free,
    pub at: u32,
    pub count: u32,
}

impl Groups {
    /// Allocates one extent and writes down its owner.
    ///
    /// The transaction may hold AGFs that it locked through the same `reservation`, and no others.
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
        let (first, only, near, exact) = self.first_group(request.near)?;
        let total = self.count();
        let count = if only { 1 } else { total };
        if reservation.highest.is_none() {
            may_wait(Rank::Agf(if only { first.get() } else { 0 }));
        }
        let want = |group: u32| Want {
            near: near.filter(|_| group == first.get()),
            exact,
            min: request.min.max(1),
            max: request.max.max(request.min).max(1),
            align: request.align.max(1),
            within: None,
            reuse_busy: !request.data,
        };
        // Lower groups than one that is held can only be tried: so a change begins where there is room for all that it
        // may still take, or else at the lowest group. Blocks that are wanted, but not needed, do not count.
        let begins = reservation.highest.is_none() && !only;
        let rest = reservation.left().saturating_sub(request.max.saturating_sub(request.min));
        let suits = |group: &Group| !begins || group.unreserved_blocks() >= rest;
        // First without waiting for anybody; then in ascending order, behind what this transaction holds already.
        let wrapped = (0..count).map(|n| (first.get() + n) % total);
        for ag in wrapped {
            let Some(group) =
                self.get(AgNumber(ag)).filter(|group| group.may_have(&want(ag)) && suits(group))
            else {
                continue;
            };
            if let Some(open) = group.try_lock(tx)? {
                reservation.highest = reservation.highest.max(Some(group.ag));
                if let Some(found) = open.alloc(tx, &want(ag), request.owner, 0)? {
                    reservation.spend(found.1)?;
                    return Ok((group.fs_block(found.0), found.1));
                }
            }
        }
        let from = reservation.highest.map_or(0, |highest| highest.get());
        let ascending = if only { first.get()..first.get() + 1 } else { 0..total };
        for ag in ascending.filter(|ag| *ag >= from) {
            let Some(group) = self.get(AgNumber(ag)) else { continue };
            let open = group.lock(tx)?;
            reservation.highest = Some(group.ag);
            if let Some(found) = open.alloc(tx, &want(ag), request.owner, 0)? {
                reservation.spend(found.1)?;
                return Ok((group.fs_block(found.0), found.1));
            }
        }
        let lower = if only { 0..0 } else { 0..from };
        let found = self.alloc_lower(tx, lower, want, request.owner)?;
        let (start, count) = found.ok_or(Error::NoSpace { what: "an extent" })?;
        reservation.spend(count)?;
        Ok((start, count))
    }

    /// Allocates in one of the groups below those that the transaction holds. Others may hold them, for a moment each;
    /// they cannot be waited for, as who holds one may wait for a group that is held here, but are tried for a while.
    fn alloc_lower(
        &self,
        tx: &mut Transaction,
        groups: Range<u32>,
        want: impl Fn(u32) -> Want,
        owner: Owner,
    ) -> Result<Option<(FsBlock, u32)>, Error> {
        for _ in 0..TURNS {
            let mut is_held = false;
            for ag in groups.clone() {
                let Some(group) = self.get(AgNumber(ag)).filter(|group| group.may_have(&want(ag))) else {
                    continue;
                };
                let Some(open) = group.try_lock(tx)? else {
                    is_held = true;
                    continue;
                };
                if let Some((at, count)) = open.alloc(tx, &want(ag), owner, 0)? {
                    return Ok(Some((group.fs_block(at), count)));
                }
            }
            if !is_held {
                break;
            }
            base::thread::sleep(PAUSE);
        }
        Ok(None)
    }

    /// The group to begin with; whether it is the only one; the block to be near; whether exactly there.
    pub(super) fn first_group(&self, near: Near) -> Result<(AgNumber, bool, Option<u32>, bool), Error> {
        let place = |block| self.of_block(block, 1).map(|(group, at)| (group.ag, at.get()));
        Ok(match near {
            Near::Ag(ag) => (ag, false, None, false),
            Near::OnlyAg(ag) => (ag, true, None, false),
            // A hint that makes no sense is no reason to fail.
            Near::Block(block) => match place(block) {
                Ok((ag, at)) => (ag, false, Some(at), false),
                Err(_) => (AgNumber(0), false, None, false),
            },
            Near::OnlyNear(block) => place(block).map(|(ag, at)| (ag, true, Some(at), false))?,
            Near::Exact(block) => place(block).map(|(ag, at)| (ag, true, Some(at), true))?,
        })
    }
}

impl Group {
    /// Whether a look at the group is worth its lock.
    pub(super) fn may_have(&self, want: &Want) -> bool {
        let unclaimed = self.freeblks.load(Relaxed).saturating_sub(self.claimed.load(Relaxed));
        self.longest.load(Relaxed).min(unclaimed) >= want.min
    }
}

impl OpenAg<'_> {
    /// Whether the group can give `count` blocks and still keep what its trees need. `own` blocks are for those trees.
    pub(super) fn has_room(&self, tx: &Transaction, count: u32, own: u32) -> bool {
        let kept = self.list_need(tx)
            + (self.group.metadata.left() + self.group.mappings.left()).saturating_sub(own)
            + self.group.claimed.load(Relaxed);
        let have = u64::from(self.get(tx, agf!(freeblks))) + u64::from(self.get(tx, agf!(flcount)));
        have >= u64::from(kept) + u64::from(count)
    }

    /// Allocates in this group; `None` where it has no such extent.
    pub(crate) fn alloc(
        &self,
        tx: &mut Transaction,
        want: &Want,
        owner: Owner,
        own: u32,
    ) -> Result<Option<(AgBlock, u32)>, Error> {
        // Before anything changes: is there such an extent at all?
        if !self.has_room(tx, want.min, own) || self.find(tx, want)?.is_none() {
            return Ok(None);
        }
        self.fix_list(tx)?;
        let mut want = *want;
        while want.max > want.min && !self.has_room(tx, want.max, own) {
            want.max = want.min.max(want.max / 2);
        }
        let Some(found) = self.find(tx, &want)? else { return Ok(None) };
        self.take_out(tx, found.free, found.at, found.count)?;
        self.map_owner(tx, AgBlock(found.at), found.count, owner)?;
        Ok(Some((AgBlock(found.at), found.count)))
    }

    /// Allocates one block for a tree that has blocks set aside: inode trees and reference counts.
    ///
    /// # Errors
    /// No space: neither set aside nor elsewhere in the volume.
    pub fn alloc_tree_block(
        &self,
        tx: &mut Transaction,
        near: AgBlock,
        owner: Owner,
    ) -> Result<AgBlock, Error> {
        self.group.faults.strike()?;
        let near = Some(near.get());
        let want = Want { near, exact: false, min: 1, max: 1, align: 1, within: None, reuse_busy: true };
        let own = self.group.metadata.left();
        let Some((block, _)) = self.alloc(tx, &want, owner, own)? else {
            return Err(Error::NoSpace { what: "a tree of an allocation group" });
        };
        if self.group.metadata.draw(1) == 0 && !self.group.free.try_sub(1) {
            return Err(Error::NoSpace { what: "a tree of an allocation group" });
        }
        Ok(block)
    }

    /// Allocates one block for any other tree of this group, from blocks that were reserved.
    ///
    /// # Errors
    /// No space in this group.
    pub fn alloc_block(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        near: AgBlock,
        owner: Owner,
    ) -> Result<AgBlock, Error> {
        self.group.faults.strike()?;
        let near = Some(near.get());
        let want = Want { near, exact: false, min: 1, max: 1, align: 1, within: None, reuse_busy: true };
        let Some((block, _)) = self.alloc(tx, &want, owner, 0)? else {
            return Err(Error::NoSpace { what: "a tree of an allocation group" });
        };
        reservation.spend(1)?;
        Ok(block)
    }

    /// Finds free blocks. Changes nothing.
    pub(crate) fn find(&self, tx: &mut Transaction, want: &Want) -> Result<Option<Found>, Error> {
        let found = self.find_with(tx, want, false)?;
        if found.is_none() && want.reuse_busy && self.group.busy_count.load(Relaxed) > 0 {
            return self.find_with(tx, want, true);
        }
        Ok(found)
    }

    fn find_with(&self, tx: &mut Transaction, want: &Want, busy_too: bool) -> Result<Option<Found>, Error> {
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
    fn find_any(&self, tx: &mut Transaction, want: &Want, busy_too: bool) -> Result<Option<Found>, Error> {
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
        want: &Want,
        near: u32,
        busy_too: bool,
    ) -> Result<Option<Found>, Error> {
        let mut bno = self.cursor::<BnoBt>();
        let here = bno.lookup_le(tx, near)?;
        if want.exact {
            let fits = here.and_then(|free| self.fit(&free, want, Some(near), busy_too));
            return Ok(fits.filter(|found| found.at == near));
        }
        let full = |found: &Found| found.count == want.max;
        let mut best = here.and_then(|free| self.fit(&free, want, Some(near), busy_too)).filter(full);
        let distance = |found: &Found| found.at.abs_diff(near);
        let mut consider = |found: Option<Found>| {
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
        want: &Want,
        busy_too: bool,
    ) -> Result<Option<Found>, Error> {
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
        let mut best: Option<Found> = None;
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
    fn fit(&self, free: &FreeExtent, want: &Want, near: Option<u32>, busy_too: bool) -> Option<Found> {
        let whole = (free.startblock.get(), free.blockcount.get());
        // What a damaged tree says must not lead outside of the group.
        if !self.group.holds(AgBlock(whole.0), whole.1) {
            return None;
        }
        let mut best: Option<Found> = None;
        let mut part = |start: u32, count: u32| {
            let Some((start, count)) = clip((start, count), want.within) else { return };
            let Some((at, count)) = place(start, count, want, near) else { return };
            let better = |old: Found| match (near, old.count.cmp(&count)) {
                (_, Ordering::Less) => true,
                (Some(near), Ordering::Equal) => at.abs_diff(near) < old.at.abs_diff(near),
                _ => false,
            };
            if best.is_none_or(better) {
                best = Some(Found { free: whole, at, count });
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
fn place(start: u32, count: u32, want: &Want, near: Option<u32>) -> Option<(u32, u32)> {
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

    const WANT: Want =
        Want { near: None, exact: false, min: 2, max: 4, align: 1, within: None, reuse_busy: false };

    #[test]
    fn an_extent_is_placed_near_aligned_and_within() {
        assert_eq!(place(10, 20, &WANT, None), Some((10, 4)));
        assert_eq!(place(10, 20, &WANT, Some(5)), Some((10, 4)));
        assert_eq!(place(10, 20, &WANT, Some(15)), Some((15, 4)));
        assert_eq!(place(10, 20, &WANT, Some(29)), Some((26, 4)));
        assert_eq!(place(10, 20, &WANT, Some(500)), Some((26, 4)));
        assert_eq!(place(10, 3, &WANT, None), Some((10, 3)));
        assert_eq!(place(10, 1, &WANT, None), None);
        let aligned = Want { align: 8, ..WANT };
        assert_eq!(place(10, 20, &aligned, Some(23)), Some((16, 4)));
        assert_eq!(place(10, 20, &aligned, Some(25)), Some((24, 4)));
        assert_eq!(place(10, 6, &aligned, None), None);
        assert_eq!(place(10, 7, &aligned, None), None);
        assert_eq!(place(10, 8, &aligned, None), Some((16, 2)));
        let exact = Want { exact: true, ..WANT };
        assert_eq!(place(10, 20, &exact, Some(28)), Some((28, 2)));
        assert_eq!(place(10, 20, &exact, Some(29)), None);
        assert_eq!(place(u32::MAX - 3, 3, &Want { align: 16, ..WANT }, None), None);
    }

    #[test]
    fn every_place_lies_within_the_run_and_is_aligned() {
        for (start, count, align) in
            (0..40).flat_map(|s| (1..20).flat_map(move |c| (1..9).map(move |a| (s, c, a))))
        {
            for near in [None, Some(0), Some(7), Some(30), Some(90)] {
                let want = Want { align, ..WANT };
                if let Some((at, got)) = place(start, count, &want, near) {
                    assert!(at >= start && at + got <= start + count && at % align == 0);
                    assert!((2..=4).contains(&got));
                }
            }
        }
    }
}
