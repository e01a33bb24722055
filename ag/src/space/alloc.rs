//! Extent allocation: which AG, and which blocks.
//!
//! A transaction that holds an AGF can only wait for AGFs of higher AGs. So before its first allocation it locks all
//! AGs that it will allocate from: one AG with space for the whole reservation; or, if there is none, the lowest AGs
//! that have this space together. What is reserved is contributed by some AGs. The holder of an AGF keeps others from
//! changing the AG's free space, but claims end without it: space can still appear in an AG that was checked already.
//! Only a second check with all AGFs held finds everything that is reserved.
//!
//! Within an AG the order is: the target blocks, if they are free; the nearest extent that is long enough, among some
//! on both sides; the shortest that is long enough; the longest.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use base::lock::{Rank, might_lock};
use base::{AgBlock, AgNumber, FsBlock};
use error::{Error, Result};
use format::btree::{BnoBt, CntBt, FreeExtent};
use journal::engine::Transaction;
use smallvec::SmallVec;

use super::block_reservation::BlockReservation;
use super::contribution::Payer;
use super::free_extents::Free;
use crate::group::{Group, Groups, LockedAg, agf};
use crate::owner::ExtentOwner;

/// Maximum number of free extents to check on each side of the target.
const NEAR_MAX: usize = 24;
/// Maximum number of free extents to check by size, if alignment or busy blocks make the first ones unfit.
const SIZES_MAX: usize = 64;

/// Allocation target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocTarget {
    /// In this AG if it has space, else in any.
    Ag(AgNumber),
    /// In this AG or nowhere.
    OnlyAg(AgNumber),
    /// Near this block, in its AG if that has space, else in any.
    Block(FsBlock),
    /// Near this block, in its AG or nowhere.
    OnlyNear(FsBlock),
    /// At this block or nowhere.
    Exact(FsBlock),
}

/// An allocation request. Lengths are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct AllocRequest {
    /// Target.
    pub target: AllocTarget,
    /// Minimum length, at least 1.
    pub min: u32,
    /// Maximum length.
    pub max: u32,
    /// Alignment: the first AG block is a multiple of it; 1 for none.
    pub align: u32,
    /// Owner of the extent.
    pub owner: ExtentOwner,
    /// The extent is for file data, which does not go through the log: busy extents must not be reused.
    pub data: bool,
}

/// Arguments of an allocation in one AG.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgAllocArgs {
    pub near: Option<u32>,
    pub exact: bool,
    pub min: u32,
    pub max: u32,
    pub align: u32,
    /// Range of AG blocks that must contain the extent.
    pub within: Option<(u32, u32)>,
    /// Busy extents may be reused, if nothing else is left.
    pub reuse_busy: bool,
}

/// A candidate: blocks, and the free extent that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocCandidate {
    pub free: Free,
    pub at: u32,
    pub count: u32,
}

/// Whether the AGs that are locked suffice, if they have the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suitability {
    /// No: another AG is needed.
    NotYet,
    /// All of them together suffice.
    Together,
    /// The last one alone suffices, and so do all together.
    Alone,
}

impl Suitability {
    fn together(suits: bool) -> Self {
        if suits { Self::Together } else { Self::NotYet }
    }
}

impl Groups {
    /// Allocates one extent and records its owner.
    ///
    /// The transaction may hold AGFs that it locked through the same `reservation`, and no others. Its first allocation
    /// locks AGs that have space for the whole reservation, so later allocations of single blocks cannot fail.
    ///
    /// # Errors
    /// No space: no AG has an extent of the minimum length. The AGs are consistent then, and the transaction can be
    /// committed.
    pub fn alloc_extent(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        request: &AllocRequest,
    ) -> Result<(FsBlock, u32)> {
        self.faults.strike()?;
        let (first, only, near, exact) = self.first_group(request.target)?;
        let (min, max) = (request.min.max(1), request.max.max(request.min).max(1));
        let args = |ag: AgNumber| AgAllocArgs {
            near: near.filter(|_| ag == first),
            exact,
            min,
            max,
            align: request.align.max(1),
            within: None,
            reuse_busy: !request.data,
        };
        reservation.cover(min)?;
        // Blocks beyond the minimum do not count.
        let later = reservation.left().saturating_sub(max);
        if reservation.locked_ags.is_empty() && !only {
            self.lock_groups_for(tx, reservation, (first, &args), min + later)?;
        }
        // The target AG, the others that are held, and then higher ones, for which the transaction may wait.
        let last = reservation.locked_ags.last().copied();
        let mut in_turn = if only { SmallVec::from_elem(first, 1) } else { reservation.locked_ags.clone() };
        in_turn.sort_unstable_by_key(|ag| (*ag != first, *ag));
        let above = if only { self.count() } else { last.map_or(0, |last| last.get() + 1) };
        for ag in in_turn.into_iter().chain((above..self.count()).map(AgNumber)) {
            let can_lock = last.is_none_or(|last| last <= ag) || reservation.locked_ags.contains(&ag);
            let Some(group) = self.get(ag).filter(|_| can_lock) else { continue };
            let locked = group.lock(tx)?;
            reservation.note_locked(ag);
            let most = self.allocatable_beyond(tx, reservation, later)?.min(reservation.left()).max(min);
            let args = AgAllocArgs { max: max.min(most), ..args(ag) };
            if let Some((at, count)) = locked.alloc(tx, &args, request.owner, Payer::Reservation)? {
                reservation.spend(count);
                return Ok((group.fs_block(at), count));
            }
        }
        Err(Error::NoSpace { what: "an extent" })
    }

    /// Allocatable blocks of the locked AGs, less `later` blocks.
    fn allocatable_beyond(
        &self,
        tx: &mut Transaction,
        reservation: &BlockReservation<'_>,
        later: u32,
    ) -> Result<u32> {
        let mut allocatable = 0u32;
        for group in reservation.locked_ags.iter().filter_map(|ag| self.get(*ag)) {
            allocatable = allocatable.saturating_add(group.lock(tx)?.allocatable(tx, Payer::Reservation));
        }
        Ok(allocatable.saturating_sub(later))
    }

    /// Locks AGs that have space for `need` blocks, of which one has the first extent.
    fn lock_groups_for(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        (first, args): (AgNumber, &dyn Fn(AgNumber) -> AgAllocArgs),
        need: u32,
    ) -> Result<()> {
        might_lock(Rank::Agf(0));
        let total = self.count();
        // First without waiting.
        for ag in (0..total).map(|n| AgNumber((first.get() + n) % total)) {
            let args = args(ag);
            let suits =
                |group: &&_| Group::may_have(group, &args) && Group::unclaimed_contribution(group) >= need;
            let Some(group) = self.get(ag).filter(|group| suits(&&***group)) else { continue };
            if let Some(locked) = group.try_lock(tx)? {
                if locked.allocatable(tx, Payer::Reservation) >= need && locked.find(tx, &args)?.is_some() {
                    reservation.note_locked(ag);
                    return Ok(());
                }
                locked.release(tx, None);
            }
        }
        let mut found = false;
        self.lock_from_lowest(tx, reservation, need, &mut |tx, locked| {
            let here = locked.allocatable(tx, Payer::Reservation) > 0
                && locked.find(tx, &args(locked.group.ag))?.is_some();
            found |= here;
            Ok(if here { Suitability::Alone } else { Suitability::together(found) })
        })
    }

    /// Locks AGs from the lowest on, until one has space for `need` blocks alone, or all have together. `suits` is
    /// called for each.
    ///
    /// # Errors
    /// No space; the transaction then holds no AGF.
    pub(super) fn lock_from_lowest(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        need: u32,
        suits: &mut dyn FnMut(&mut Transaction, LockedAg<'_>) -> Result<Suitability>,
    ) -> Result<()> {
        let (mut allocatable, mut opened) = (0u32, Vec::new());
        for group in self.iter() {
            let locked = group.lock(tx)?;
            let here = locked.allocatable(tx, Payer::Reservation);
            allocatable = allocatable.saturating_add(here);
            let suits = suits(tx, locked)?;
            let alone = suits == Suitability::Alone && here >= need;
            if alone && let Some(first) = opened.first() {
                LockedAg::release(first, tx, Some(&locked));
                opened.clear();
            }
            opened.push(locked);
            if alone || (suits != Suitability::NotYet && allocatable >= need) {
                opened.iter().for_each(|locked| reservation.note_locked(locked.group.ag));
                return Ok(());
            }
        }
        // Claims that ended meanwhile may have freed space in AGs that were checked already. From now on claims can
        // only end.
        let (mut allocatable, mut together) = (0u32, false);
        for locked in &opened {
            allocatable = allocatable.saturating_add(locked.allocatable(tx, Payer::Reservation));
            together |= suits(tx, *locked)? != Suitability::NotYet;
        }
        if together && allocatable >= need {
            opened.iter().for_each(|locked| reservation.note_locked(locked.group.ag));
            return Ok(());
        }
        if let Some(first) = opened.first() {
            first.release(tx, None);
        }
        Err(Error::NoSpace { what: "an extent" })
    }

    /// Locks the AGs of claims that the transaction is about to allocate, and others if these have no space for `then`
    /// more blocks. The transaction holds no AGF.
    ///
    /// # Errors
    /// No space: less was reserved.
    pub(super) fn lock_claimed_groups(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        mut groups: SmallVec<[AgNumber; 2]>,
        then: u32,
    ) -> Result<()> {
        groups.sort_unstable();
        groups.dedup();
        let Some(last) = groups.last().copied() else { return Ok(()) };
        might_lock(Rank::Agf(0));
        let (mut allocatable, mut opened) = (0u32, SmallVec::<[LockedAg<'_>; 2]>::new());
        for group in groups.iter().filter_map(|ag| self.get(*ag)) {
            let locked = group.lock(tx)?;
            allocatable = allocatable.saturating_add(locked.allocatable(tx, Payer::Reservation));
            opened.push(locked);
        }
        if allocatable >= then {
            reservation.locked_ags = groups;
            return Ok(());
        }
        if let Some(first) = opened.first() {
            first.release(tx, None);
        }
        self.lock_from_lowest(tx, reservation, then, &mut |_, locked| {
            let alone = groups.len() == 1 && locked.group.ag == last;
            Ok(if alone { Suitability::Alone } else { Suitability::together(locked.group.ag >= last) })
        })
    }

    /// The first AG, whether only that AG, the target block, and whether exactly that block.
    pub(super) fn first_group(&self, target: AllocTarget) -> Result<(AgNumber, bool, Option<u32>, bool)> {
        let place = |block| self.of_block(block, 1).map(|(group, at)| (group.ag, at.get()));
        Ok(match target {
            AllocTarget::Ag(ag) => (ag, false, None, false),
            AllocTarget::OnlyAg(ag) => (ag, true, None, false),
            // An invalid hint is ignored.
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
    /// Whether the AG may have such an extent, as far as known without its lock.
    pub(crate) fn may_have(&self, args: &AgAllocArgs) -> bool {
        let unclaimed = self.freeblks.load(Relaxed).saturating_sub(self.claimed.load(Relaxed));
        self.longest.load(Relaxed).min(unclaimed) >= args.min
    }
}

impl LockedAg<'_> {
    /// Allocates in this AG; `None` if it has no such extent.
    pub(crate) fn alloc(
        &self,
        tx: &mut Transaction,
        args: &AgAllocArgs,
        owner: ExtentOwner,
        payer: Payer,
    ) -> Result<Option<(AgBlock, u32)>> {
        // Before anything changes, check that there is such an extent.
        if self.allocatable(tx, payer) < args.min || self.find(tx, args)?.is_none() {
            return Ok(None);
        }
        self.fix_freelist(tx)?;
        let args = AgAllocArgs { max: args.max.min(self.allocatable(tx, payer)).max(args.min), ..*args };
        let Some(found) = self.find(tx, &args)? else { return Ok(None) };
        self.remove_free(tx, found.free, found.at, found.count)?;
        self.map_owner(tx, AgBlock(found.at), found.count, owner)?;
        let paid = match payer {
            Payer::Reservation => found.count,
            Payer::Group => {
                self.group.metadata_reservation.draw(found.count);
                0
            }
        };
        self.update_contribution(tx, paid);
        Ok(Some((AgBlock(found.at), found.count)))
    }

    /// Allocates one block for the finobt or refcountbt, from the AG's reservation.
    ///
    /// # Errors
    /// No space: neither reserved nor otherwise free in this AG.
    pub fn alloc_tree_block(
        &self,
        tx: &mut Transaction,
        near: AgBlock,
        owner: ExtentOwner,
    ) -> Result<AgBlock> {
        self.group.faults.strike()?;
        let near = Some(near.get());
        let args =
            AgAllocArgs { near, exact: false, min: 1, max: 1, align: 1, within: None, reuse_busy: true };
        let block = self.alloc(tx, &args, owner, Payer::Group)?;
        block.map(|(block, _)| block).ok_or(Error::NoSpace { what: "a tree of an allocation group" })
    }

    /// Finds free blocks. It changes nothing.
    pub(crate) fn find(&self, tx: &mut Transaction, args: &AgAllocArgs) -> Result<Option<AllocCandidate>> {
        let found = self.find_with(tx, &AgAllocArgs { reuse_busy: false, ..*args })?;
        if found.is_none() && args.reuse_busy && self.group.busy_count.load(Relaxed) > 0 {
            return self.find_with(tx, args);
        }
        Ok(found)
    }

    /// Finds free blocks, or equally busy ones if they may be reused.
    fn find_with(&self, tx: &mut Transaction, args: &AgAllocArgs) -> Result<Option<AllocCandidate>> {
        if let Some(near) = args.near {
            let found = self.find_near(tx, args, near)?;
            if found.is_some() || args.exact {
                return Ok(found);
            }
        }
        let found = self.find_by_size(tx, args)?;
        if found.is_some() || args.min > 1 {
            return Ok(found);
        }
        self.find_any(tx, args)
    }

    /// The first usable block after the target, or else before it. The searches above give up after some extents; if
    /// free space consists of single blocks, all that they check may be claimed or busy.
    fn find_any(&self, tx: &mut Transaction, args: &AgAllocArgs) -> Result<Option<AllocCandidate>> {
        if self.get(tx, agf!(freeblks)) <= self.group.claimed.load(Relaxed) {
            return Ok(None);
        }
        let near = args.near.unwrap_or(0);
        for (from, to) in [(near, u32::MAX), (0, near)] {
            let mut bno = self.cursor::<BnoBt>();
            let mut free = bno.lookup_ge(tx, from)?;
            while let Some(extent) = free.filter(|extent| extent.startblock.get() < to) {
                if let Some(found) = self.fit(&extent, args, None) {
                    return Ok(Some(found));
                }
                free = bno.next(tx)?;
            }
        }
        Ok(None)
    }

    /// The nearest extent of the maximum length; with `exact`, the blocks at the target.
    fn find_near(
        &self,
        tx: &mut Transaction,
        args: &AgAllocArgs,
        near: u32,
    ) -> Result<Option<AllocCandidate>> {
        let mut bno = self.cursor::<BnoBt>();
        let here = bno.lookup_le(tx, near)?;
        if args.exact {
            let fits = here.and_then(|free| self.fit(&free, args, Some(near)));
            return Ok(fits.filter(|found| found.at == near));
        }
        let full = |found: &AllocCandidate| found.count == args.max;
        let mut best = here.and_then(|free| self.fit(&free, args, Some(near))).filter(full);
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
            let beyond = free.startblock.get().abs_diff(near);
            if consider(self.fit(&free, args, Some(near))).is_some_and(|b| distance(&b) <= beyond) {
                break;
            }
        }
        for _ in 0..NEAR_MAX {
            let Some(free) = bno.prev(tx)? else { break };
            let end = free.startblock.get().saturating_add(free.blockcount.get());
            let before = near.saturating_sub(end);
            if consider(self.fit(&free, args, Some(near))).is_some_and(|b| distance(&b) <= before) {
                break;
            }
        }
        Ok(best)
    }

    /// The shortest extent of the maximum length, else the longest.
    fn find_by_size(&self, tx: &mut Transaction, args: &AgAllocArgs) -> Result<Option<AllocCandidate>> {
        let mut cnt = self.cursor::<CntBt>();
        let mut free = cnt.lookup_ge(tx, (args.max, 0))?;
        for _ in 0..SIZES_MAX {
            let Some(extent) = free else { break };
            let found = self.fit(&extent, args, args.near);
            if let Some(found) = found.filter(|found| found.count == args.max) {
                return Ok(Some(found));
            }
            free = cnt.next(tx)?;
        }
        let mut best: Option<AllocCandidate> = None;
        let mut free = cnt.last(tx)?;
        for _ in 0..SIZES_MAX {
            let Some(extent) = free else { break };
            let least = best.map_or(args.min, |best| best.count + 1);
            if extent.blockcount.get() < least {
                break;
            }
            let found = self.fit(&extent, args, args.near);
            if let Some(found) = found.filter(|found| found.count >= least) {
                best = Some(found);
            }
            free = cnt.prev(tx)?;
        }
        Ok(best)
    }

    /// The best usable part of a free extent: longest, aligned, then nearest to the target.
    fn fit(&self, free: &FreeExtent, args: &AgAllocArgs, near: Option<u32>) -> Option<AllocCandidate> {
        let whole = (free.startblock.get(), free.blockcount.get());
        // A damaged record must not lead outside of the AG.
        if !self.group.holds(AgBlock(whole.0), whole.1) {
            return None;
        }
        let mut best: Option<AllocCandidate> = None;
        let mut part = |start: u32, count: u32| {
            let Some((start, count)) = clip((start, count), args.within) else { return };
            let Some((at, count)) = place(start, count, args, near) else { return };
            let better = |old: AllocCandidate| match (near, old.count.cmp(&count)) {
                (_, Ordering::Less) => true,
                (Some(near), Ordering::Equal) => at.abs_diff(near) < old.at.abs_diff(near),
                _ => false,
            };
            if best.is_none_or(better) {
                best = Some(AllocCandidate { free: whole, at, count });
            }
        };
        self.group.usable_parts(whole, args.reuse_busy, &mut part);
        best
    }
}

/// The part of a run within a range.
fn clip((start, count): (u32, u32), within: Option<(u32, u32)>) -> Option<(u32, u32)> {
    let Some((from, to)) = within else { return Some((start, count)) };
    let (first, end) = (start.max(from), (start + count).min(to));
    (first < end).then(|| (first, end - first))
}

/// Places an extent within a run of free blocks: as long as possible up to the maximum, then as near to `near` as
/// alignment allows.
fn place(start: u32, count: u32, args: &AgAllocArgs, near: Option<u32>) -> Option<(u32, u32)> {
    let end = start + count;
    let first = start.checked_next_multiple_of(args.align).filter(|first| *first < end)?;
    let longest = (end - first).min(args.max);
    if longest < args.min {
        return None;
    }
    let Some(near) = near.filter(|near| *near > first) else { return Some((first, longest)) };
    if args.exact {
        return (near < end && near.is_multiple_of(args.align) && end - near >= args.min)
            .then(|| (near, (end - near).min(args.max)));
    }
    let at = near.min(end - longest);
    Some((at - at % args.align, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANT: AgAllocArgs =
        AgAllocArgs { near: None, exact: false, min: 2, max: 4, align: 1, within: None, reuse_busy: false };

    #[test]
    fn place_respects_target_alignment_and_range() {
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
    fn every_place_is_within_the_run_and_aligned() {
        for (start, count, align) in
            (0..40).flat_map(|s| (1..20).flat_map(move |c| (1..9).map(move |a| (s, c, a))))
        {
            for near in [None, Some(0), Some(7), Some(30), Some(90)] {
                let args = AgAllocArgs { align, ..WANT };
                if let Some((at, got)) = place(start, count, &args, near) {
                    assert!(at >= start && at + got <= start + count && at % align == 0);
                    assert!((2..=4).contains(&got));
                }
            }
        }
    }
}
