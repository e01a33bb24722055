//! Reserving space in the rmapbt before a change adds records to it.
//!
//! Each AG reserves as many blocks for the rmapbt as one record for each of its blocks needs. Shared blocks have a
//! record for each owner, and splitting a record adds one without freeing a block. So a change that adds an owner or
//! splits a record reserves space in the rmapbt first ([`RmapReservation`]). For this the AG's reservation grows, as
//! long as the AG has free blocks that are neither claimed nor reserved.
//!
//! # Invariants
//! While a [`RmapReservation`] is held, the reservation of its AG covers the rmapbt, one record for each free block,
//! and the records that all holders may add: so shared blocks never take the space that an allocation needs. Blocks
//! that become free meanwhile raise the reservation by as many blocks as the AG gains.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::FsBlock;
use error::{Error, Result};
use format::btree::{Btree as _, RmapBt};
use journal::engine::Transaction;

use super::block_reservation::tree_size;
use crate::group::{Group, Groups, LockedAg};

/// Blocks that the refcountbt may take while several changes adjust counts at once.
const COUNTS_AT_ONCE: u32 = 16;
/// Blocks reserved beyond the need, so that the next changes need no AGF.
const AHEAD: u32 = 16;
const NO_MAPPING: Error =
    Error::NoSpace { what: "another record in the reverse-mapping btree of an allocation group" };
const NO_COUNT: Error =
    Error::NoSpace { what: "another record in the reference-count btree of an allocation group" };
/// Records that are added in one place of the rmapbt if an extent is converted in its middle.
const RECORDS: u64 = 2;

/// Why a change adds a record to the rmapbt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmapChange {
    /// The blocks get another owner. The caller can copy them instead, so this is refused first.
    AddOwner,
    /// A part of the extent is unmapped.
    Unmap,
    /// A part of the extent is converted between written and unwritten, or moves within its file.
    Convert,
}

/// Space in the rmapbt of one AG for a number of changes. Drop it when these are committed or abandoned.
#[derive(Debug)]
pub struct RmapReservation {
    group: Arc<Group>,
    changes: u32,
}

impl RmapReservation {
    /// Releases the space for all but `most` changes.
    fn limit(&mut self, most: u32) {
        let over = self.changes.saturating_sub(most);
        if over > 0 {
            self.group.rmap_reservation.end_changes(over);
            self.changes -= over;
        }
    }
}

impl Drop for RmapReservation {
    fn drop(&mut self) {
        self.limit(0);
    }
}

/// [`RmapReservation`]s of several AGs, one for each.
#[derive(Debug, Default)]
pub struct RmapReservations(Vec<RmapReservation>);

impl RmapReservations {
    /// Adds a reservation.
    pub fn add(&mut self, mut reservation: RmapReservation) {
        match self.0.iter_mut().find(|known| Arc::ptr_eq(&known.group, &reservation.group)) {
            Some(known) => known.changes += std::mem::take(&mut reservation.changes),
            None => self.0.push(reservation),
        }
    }

    /// Adds all reservations of `others`.
    pub fn join(&mut self, others: Self) {
        if !others.0.is_empty() {
            others.0.into_iter().for_each(|reservation| self.add(reservation));
        }
    }

    /// Takes out the space for one change in an AG, if there is some.
    fn take_one(&mut self, group: &Arc<Group>) -> Option<RmapReservation> {
        let reservation = self
            .0
            .iter_mut()
            .find(|reservation| reservation.changes > 0 && Arc::ptr_eq(&reservation.group, group))?;
        reservation.changes -= 1;
        Some(RmapReservation { group: Arc::clone(group), changes: 1 })
    }

    /// Releases the space for all but `most` changes in each AG.
    pub fn limit(&mut self, most: u32) {
        if !self.0.is_empty() {
            self.0.iter_mut().for_each(|reservation| reservation.limit(most));
            self.0.retain(|reservation| reservation.changes > 0);
        }
    }
}

impl Groups {
    /// Reserves space for `changes` changes in the rmapbt of the AG that holds `start`; `None` if nothing needs to be
    /// reserved. The transaction of the changes has locked no AGF yet. `tx` is a reader: every buffer that it locks
    /// here is released before this returns.
    ///
    /// # Errors
    /// No space. Damage; I/O errors.
    ///
    /// # Locking
    /// The AGF of the extent, if the reservation must grow.
    pub fn reserve_rmap(
        &self,
        tx: &mut Transaction,
        start: FsBlock,
        change: RmapChange,
        changes: u32,
    ) -> Result<Option<RmapReservation>> {
        let (group, _) = self.of_block(start, 1)?;
        let features = self.geometry().features;
        // Without shared blocks there is at most one record for each block, and the base reservation suffices.
        if !features.reflink() || !features.rmapbt() && change == RmapChange::Convert {
            return Ok(None);
        }
        if !features.rmapbt() {
            return if group.backs_growth() { Ok(None) } else { Err(NO_COUNT) };
        }
        group.rmap_reservation.begin_changes(changes);
        let reservation = RmapReservation { group: Arc::clone(group), changes };
        if !group.backs_growth() || change == RmapChange::AddOwner && group.rmap_nearly_full() {
            return Err(NO_MAPPING);
        }
        if group.covers_pending_changes() {
            return Ok(Some(reservation));
        }
        let locked = group.lock(tx)?;
        let raised = locked.raise_rmap_reservation(tx);
        tx.release_clean();
        if raised { Ok(Some(reservation)) } else { Err(NO_MAPPING) }
    }

    /// Takes the space for one change to the extent at `start` out of `reservations`.
    ///
    /// # Errors
    /// Damage: the volume has no such block.
    pub fn take_rmap_reservation(
        &self,
        reservations: &mut RmapReservations,
        start: FsBlock,
    ) -> Result<Option<RmapReservation>> {
        let (group, _) = self.of_block(start, 1)?;
        Ok(reservations.take_one(group))
    }

    /// Releases what AGs reserved for changes that did not happen. `tx` is a reader, as in
    /// [`reserve_rmap`](Self::reserve_rmap).
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn shrink_rmap_reservations(&self, tx: &mut Transaction) -> Result<()> {
        for group in self.iter().filter(|group| group.rmap_reservation.raised() > 0) {
            group.lock(tx)?.update_contribution(tx, 0);
            tx.release_clean();
        }
        Ok(())
    }
}

/// Maximum growth, in blocks, of a btree of `blocks` blocks and `levels` levels by `changes` changes, each of which
/// adds [`RECORDS`] adjacent records. `most` are the maximum records of a leaf and keys of a node. In the worst case
/// each change splits a block of each level. With more changes than blocks not every change does: a block that was
/// split must receive half a block of records before it splits again.
fn growth(changes: u64, (mut blocks, levels): (u64, u32), most: (u64, u64)) -> u64 {
    let (mut splits, mut growth, mut added) = (changes, 0, RECORDS * changes);
    for level in 0..levels {
        let most_here = if level == 0 { most.0 } else { most.1 };
        splits = splits.min(blocks + added.div_ceil((most_here / 2).max(1)));
        growth += splits;
        added = splits;
        blocks = blocks.div_ceil((most.1 / 2).max(1));
    }
    // Roots above the one that was split.
    let mut top = 1 + splits;
    while top > 1 {
        top = top.div_ceil((most.1 / 2).max(2));
        growth += top;
    }
    growth
}

impl Group {
    /// Required size of the reservation: see the invariant of the module. Records of free blocks may go to full leaves,
    /// and split more of them than is counted here; then only the blocks reserved for reference counts are left.
    fn rmap_blocks_needed(&self) -> u32 {
        // In this order: a change that ends in between is counted in one of both.
        let growth = u64::from(self.rmap_growth());
        let used = u64::from(self.rmap_reservation.used());
        let free = self.freeblks.load(Relaxed).saturating_sub(self.withheld.load(Relaxed)).into();
        let most = growth + used + tree_size::<RmapBt>(&self.geometry, free);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Maximum growth of the rmapbt by the changes in progress.
    fn rmap_growth(&self) -> u32 {
        let (most, mappings) = (&self.geometry, &self.rmap_reservation);
        let levels = self.worst.rmap_levels(mappings.asked().max(mappings.used()));
        let most = (RmapBt::max_records(most) as u64, RmapBt::max_keys(most) as u64);
        let growth = growth(mappings.changes().into(), (mappings.used().into(), levels), most);
        u32::try_from(growth).unwrap_or(u32::MAX)
    }

    fn covers_pending_changes(&self) -> bool {
        self.rmap_blocks_needed() <= self.rmap_reservation.asked()
    }

    /// Whether free blocks back the growth of the trees. The counters say what is reserved for the trees, but an
    /// earlier writer of the volume may have filled the AG all the same.
    fn backs_growth(&self) -> bool {
        let free = self.freeblks.load(Relaxed).saturating_sub(self.claimed.load(Relaxed));
        let counts = self.metadata_reservation.left().min(COUNTS_AT_ONCE);
        free >= self.rmap_growth().saturating_add(counts)
    }

    /// Whether extra owners use most of the base reservation. The last tenth is kept for changes that split records: a
    /// new owner can have a copy instead.
    fn rmap_nearly_full(&self) -> bool {
        let usual = self.rmap_reservation.base();
        let kept = usual / 10 + 2 * self.worst.rmap_levels(usual);
        self.rmap_reservation.used().saturating_add(self.rmap_growth()).saturating_add(kept) > usual
    }

    /// Releases blocks beyond the base reservation that are no longer needed. The caller holds the AGF, and updates the
    /// volume's counter afterwards.
    pub(crate) fn lower_rmap_reservation(&self) {
        let raised = self.rmap_reservation.raised();
        if raised > 0 {
            let needed =
                self.rmap_blocks_needed().saturating_add(AHEAD).saturating_sub(self.rmap_reservation.base());
            self.rmap_reservation.raise(raised.min(needed));
            // A change may have begun after the need was read, relying on the larger reservation.
            if !self.covers_pending_changes() {
                self.rmap_reservation.raise(raised);
            }
        }
    }
}

impl LockedAg<'_> {
    /// Raises the reservation after blocks became free: allocating them adds records, and changes in progress must keep
    /// what they reserved. Takes at most the `gained` blocks.
    pub(crate) fn raise_from(&self, gained: u32) {
        let mappings = &self.group.rmap_reservation;
        let lacking = self.group.rmap_blocks_needed().saturating_sub(mappings.asked());
        mappings.raise(mappings.raised() + lacking.min(gained));
    }

    /// Raises the reservation to what the changes in progress need; `false`, with nothing changed, if the AG has not as
    /// many blocks.
    fn raise_rmap_reservation(&self, tx: &Transaction) -> bool {
        // Another thread may have raised it meanwhile.
        self.group.covers_pending_changes() || [AHEAD, 0].into_iter().any(|ahead| self.raise_by(tx, ahead))
    }

    fn raise_by(&self, tx: &Transaction, ahead: u32) -> bool {
        let group = self.group;
        let needed = group.rmap_blocks_needed().saturating_add(ahead).max(group.rmap_reservation.asked());
        let (noted, promise) = (group.contributed.load(Relaxed), self.contribution_with(tx, needed));
        // A contribution of 0 does not say whether the AG has as many.
        let has = promise > 0
            && promise >= group.claimed_of_contribution()
            && group.free.try_sub(noted.saturating_sub(promise).into());
        if has {
            group.contributed.store(promise.min(noted), Relaxed);
            group.rmap_reservation.raise(needed - group.rmap_reservation.base().min(needed));
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use base::random::mix;

    use super::*;

    /// Number of entries of each block of a btree, by level from the leaves up.
    struct Levels(Vec<Vec<u64>>);

    impl Levels {
        /// All blocks have the same number of records or keys, except the last of each level.
        fn of(leaves: usize, (records, keys): (u64, u64)) -> Self {
            let mut levels = vec![vec![records; leaves]];
            while let Some(below) = levels.last().map(Vec::len).filter(|below| *below > 1) {
                let mut level = vec![keys; below / keys as usize];
                let rest = below as u64 % keys;
                level.extend((rest > 0).then_some(rest));
                levels.push(level);
            }
            Self(levels)
        }

        fn insert(&mut self, most: (u64, u64), level: usize, at: usize) {
            let most_here = if level == 0 { most.0 } else { most.1 };
            let blocks = &mut self.0[level];
            blocks[at] += 1;
            if blocks[at] <= most_here {
                return;
            }
            let right = blocks[at] / 2;
            blocks[at] -= right;
            blocks.insert(at + 1, right);
            if level + 1 == self.0.len() {
                self.0.push(vec![2]);
                return;
            }
            // The parent of a block is the node with its key.
            let mut keys = 0;
            let parent = self.0[level + 1].iter().position(|count| {
                keys += count;
                keys > at as u64
            });
            self.insert(most, level + 1, parent.unwrap());
        }

        fn blocks(&self) -> u64 {
            self.0.iter().map(|level| level.len() as u64).sum()
        }
    }

    #[test]
    fn growth_is_an_upper_bound_for_any_order_of_changes() {
        // The smallest blocks, odd ones, and those of 1 and 4 KiB.
        for (seed, most) in (0..1000u64).zip([(6, 4), (7, 5), (40, 22), (168, 91)].into_iter().cycle()) {
            let dice = |n: u64, below: usize| (mix(seed << 20 | n) % below.max(1) as u64) as usize;
            let filled = if seed / 4 % 2 == 0 { most } else { (most.0 / 2, most.1 / 2) };
            let mut tree = Levels::of(1 + dice(0, 300), filled);
            let (before, levels) = (tree.blocks(), tree.0.len() as u32);
            for n in 0..1 + dice(1, 1500) as u64 {
                let leaves = tree.0[0].len();
                // At random, in one place, or where it splits a block.
                let full = tree.0[0].iter().position(|count| *count + 1 >= most.0);
                let at = match seed / 8 % 3 {
                    0 => dice(2 + n, leaves),
                    1 => leaves / 2,
                    _ => full.unwrap_or(0),
                };
                (0..RECORDS).for_each(|_| tree.insert(most, 0, at));
                let counted = growth(n + 1, (before, levels), most);
                let grew = tree.blocks() - before;
                assert!(grew <= counted, "seed {seed}, {n}: {grew} of {counted}, from {before} blocks");
            }
        }
    }

    #[test]
    fn one_change_splits_a_block_at_each_level() {
        assert_eq!(growth(1, (500, 4), (168, 91)), 5);
        assert_eq!(growth(0, (500, 4), (168, 91)), 0);
        // Many changes split hardly more blocks than there are.
        assert!(growth(100_000, (500, 3), (168, 91)) < 4000);
    }
}
