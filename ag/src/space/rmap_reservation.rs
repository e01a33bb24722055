//! Reserving space in the reverse-mapping btree before a change adds records to it.
//!
//! Each group sets as many blocks aside for the btree as one record for each of its blocks needs. Shared blocks have a
//! record for each owner, and a record that is split adds one without freeing a block. So a change that adds an owner,
//! or splits a record, reserves space in the btree first ([`RmapReservation`]). The reservation of the group grows for
//! that while the group has unclaimed free blocks and nobody else has reserved them.
//!
//! # Invariants
//! While a [`RmapReservation`] is held, the reservation of its group covers the btree, one record for each free block,
//! and what all changes that hold one may add: an allocation never finds that shared blocks have taken its part. Blocks
//! that become free meanwhile raise the reservation, by as many blocks as the group gains.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::FsBlock;
use format::btree::{Btree as _, RmapBt};
use journal::engine::{Error, Transaction};

use super::block_reservation::tree_size;
use crate::group::{Group, Groups, LockedAg};

/// Blocks that the tree of reference counts may take while several changes count at once.
const COUNTS_AT_ONCE: u32 = 16;
/// Blocks that are set aside beyond the need, so that the next changes find room without the AGF.
const AHEAD: u32 = 16;
const NO_MAPPING: Error =
    Error::NoSpace { what: "another record in the reverse-mapping btree of an allocation group" };
const NO_COUNT: Error =
    Error::NoSpace { what: "another record in the reference-count btree of an allocation group" };
/// Records that come to one place of the btree when an extent is converted in its middle.
const RECORDS: u64 = 2;

/// Why a change adds a record to the reverse-mapping btree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmapChange {
    /// The blocks get another owner. The caller could copy them instead, so this is refused first.
    AddOwner,
    /// A part of the blocks is unmapped.
    Unmap,
    /// A part of the blocks is converted between written and unwritten, or comes to another place of its file.
    Convert,
}

/// Space in the reverse-mapping btree of a group for some changes. Dropped when these have been committed, or given up.
#[derive(Debug)]
pub struct RmapReservation {
    group: Arc<Group>,
    changes: u32,
}

impl RmapReservation {
    /// Keeps the space for so many changes at most.
    fn limit(&mut self, most: u32) {
        let over = self.changes.saturating_sub(most);
        if over > 0 {
            self.group.mappings.end_changes(over);
            self.changes -= over;
        }
    }
}

impl Drop for RmapReservation {
    fn drop(&mut self) {
        self.limit(0);
    }
}

/// [`RmapReservation`]s of several groups, one for each group.
#[derive(Debug, Default)]
pub struct RmapReservations(Vec<RmapReservation>);

impl RmapReservations {
    /// Adds space for more changes.
    pub fn add(&mut self, mut room: RmapReservation) {
        match self.0.iter_mut().find(|known| Arc::ptr_eq(&known.group, &room.group)) {
            Some(known) => known.changes += std::mem::take(&mut room.changes),
            None => self.0.push(room),
        }
    }

    /// Adds what others have.
    pub fn join(&mut self, others: Self) {
        if !others.0.is_empty() {
            others.0.into_iter().for_each(|room| self.add(room));
        }
    }

    /// Takes the space for one change in a group out, if there is some.
    fn take_one(&mut self, group: &Arc<Group>) -> Option<RmapReservation> {
        let room = self.0.iter_mut().find(|room| room.changes > 0 && Arc::ptr_eq(&room.group, group))?;
        room.changes -= 1;
        Some(RmapReservation { group: Arc::clone(group), changes: 1 })
    }

    /// Keeps the space for so many changes in each group at most.
    pub fn limit(&mut self, most: u32) {
        if !self.0.is_empty() {
            self.0.iter_mut().for_each(|room| room.limit(most));
            self.0.retain(|room| room.changes > 0);
        }
    }
}

impl Groups {
    /// Reserves space in the reverse-mapping btree of the group in which `start` lies, for so many changes; `None` if
    /// nothing needs to be reserved. The transaction of the changes has locked no AGF yet. `tx` is a reader: every
    /// buffer that it locks here is released before this returns.
    ///
    /// # Errors
    /// No space. Damage; what reading meets.
    ///
    /// # Locking
    /// The AGF of the extent's group, where more must be set aside.
    pub fn reserve_rmap(
        &self,
        tx: &mut Transaction,
        start: FsBlock,
        change: RmapChange,
        changes: u32,
    ) -> Result<Option<RmapReservation>, Error> {
        let (group, _) = self.of_block(start, 1)?;
        let features = self.geometry().features;
        // Without shared blocks, there is no more than one record for each block, and what is usual is enough.
        if !features.reflink() || !features.rmapbt() && change == RmapChange::Convert {
            return Ok(None);
        }
        if !features.rmapbt() {
            return if group.backs_owners() { Ok(None) } else { Err(NO_COUNT) };
        }
        group.mappings.begin_changes(changes);
        let room = RmapReservation { group: Arc::clone(group), changes };
        if !group.backs_owners() || change == RmapChange::AddOwner && group.has_many_owners() {
            return Err(NO_MAPPING);
        }
        if group.covers_mappings() {
            return Ok(Some(room));
        }
        let open = group.lock(tx)?;
        let raised = open.raise_mappings(tx);
        tx.release_clean();
        if raised { Ok(Some(room)) } else { Err(NO_MAPPING) }
    }

    /// Takes the space for one change to the extent at `start` out of what is kept already.
    ///
    /// # Errors
    /// The volume has no such block.
    pub fn take_rmap_reservation(
        &self,
        rooms: &mut RmapReservations,
        start: FsBlock,
    ) -> Result<Option<RmapReservation>, Error> {
        let (group, _) = self.of_block(start, 1)?;
        Ok(rooms.take_one(group))
    }

    /// Gives back what was reserved for changes that were not made. `tx` is a reader, as with
    /// [`reserve_rmap`](Self::reserve_rmap).
    ///
    /// # Errors
    /// Damage; what reading meets.
    pub fn shrink_rmap_reservations(&self, tx: &mut Transaction) -> Result<(), Error> {
        for group in self.iter().filter(|group| group.mappings.raised() > 0) {
            group.lock(tx)?.settle(tx, 0);
            tx.release_clean();
        }
        Ok(())
    }
}

/// Blocks by which so many changes may make a btree of `blocks` blocks and `levels` levels grow, where each change adds
/// [`RECORDS`] records side by side. `most` are the records of a full leaf and the keys of a full node. At worst, each
/// change splits a block of each level. With more changes than blocks, not every change does: a block that was split
/// must receive half a block of records before it is split again.
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
    /// Blocks that the reservation must have: see the invariant of the module. Records of free blocks may go to leaves
    /// that are full, and split more of them than is counted here; then only the blocks that the group has set aside
    /// for reference counts are left.
    fn mappings_needed(&self) -> u32 {
        // In this order: a change that ends in between is counted in one of both.
        let growth = u64::from(self.mapping_growth());
        let used = u64::from(self.mappings.used());
        let free = self.freeblks.load(Relaxed).saturating_sub(self.withheld.load(Relaxed)).into();
        let most = growth + used + tree_size::<RmapBt>(&self.geometry, free);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Blocks by which the changes in progress may make the btree grow.
    fn mapping_growth(&self) -> u32 {
        let (most, mappings) = (&self.geometry, &self.mappings);
        let levels = self.worst.rmap_levels(mappings.asked().max(mappings.used()));
        let most = (RmapBt::max_records(most) as u64, RmapBt::max_keys(most) as u64);
        let growth = growth(mappings.changes().into(), (mappings.used().into(), levels), most);
        u32::try_from(growth).unwrap_or(u32::MAX)
    }

    fn covers_mappings(&self) -> bool {
        self.mappings_needed() <= self.mappings.asked()
    }

    /// Whether there are free blocks for the trees of owners. The counts say what is kept for the trees; whoever wrote
    /// the volume before may have filled the group all the same.
    fn backs_owners(&self) -> bool {
        let free = self.freeblks.load(Relaxed).saturating_sub(self.claimed.load(Relaxed));
        let counts = self.metadata.left().min(COUNTS_AT_ONCE);
        free >= self.mapping_growth().saturating_add(counts)
    }

    /// Whether owners have taken most of what a volume of this size sets aside. The last tenth is reserved for changes
    /// that split records: a new owner can have copies instead.
    fn has_many_owners(&self) -> bool {
        let usual = self.mappings.usual();
        let kept = usual / 10 + 2 * self.worst.rmap_levels(usual);
        self.mappings.used().saturating_add(self.mapping_growth()).saturating_add(kept) > usual
    }

    /// Gives back what the reservation has beyond its usual size and no longer needs. The caller holds the AGF, and
    /// updates the volume's counter of free blocks afterwards.
    pub(crate) fn lower_mappings(&self) {
        let raised = self.mappings.raised();
        if raised > 0 {
            let needed = self.mappings_needed().saturating_add(AHEAD).saturating_sub(self.mappings.usual());
            self.mappings.raise(raised.min(needed));
            // A change may have begun after the need was read, and relied on the larger reservation.
            if !self.covers_mappings() {
                self.mappings.raise(raised);
            }
        }
    }
}

impl LockedAg<'_> {
    /// Raises the reservation after blocks have become free: allocating them adds records, and what changes in progress
    /// have reserved must stay theirs. Takes at most the `gained` blocks.
    pub(crate) fn raise_from(&self, gained: u32) {
        let mappings = &self.group.mappings;
        let lacking = self.group.mappings_needed().saturating_sub(mappings.asked());
        mappings.raise(mappings.raised() + lacking.min(gained));
    }

    /// Sets as many blocks aside as the changes in progress need; `false`, with nothing changed, where there are not so
    /// many.
    fn raise_mappings(&self, tx: &Transaction) -> bool {
        // Others may have done so meanwhile.
        self.group.covers_mappings() || [AHEAD, 0].into_iter().any(|ahead| self.raise_by(tx, ahead))
    }

    fn raise_by(&self, tx: &Transaction, ahead: u32) -> bool {
        let group = self.group;
        let needed = group.mappings_needed().saturating_add(ahead).max(group.mappings.asked());
        let (noted, promise) = (group.promised.load(Relaxed), self.promise_with(tx, needed));
        // At 0 it cannot be told whether the group has as many.
        let has = promise > 0
            && promise >= group.claimed_of_promised()
            && group.free.try_sub(noted.saturating_sub(promise).into());
        if has {
            group.promised.store(promise.min(noted), Relaxed);
            group.mappings.raise(needed - group.mappings.usual().min(needed));
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use base::random::mix;

    use super::*;

    /// How full the blocks of each level of a btree are, from the leaves on.
    struct Levels(Vec<Vec<u64>>);

    impl Levels {
        /// All blocks have as many records or keys, but for the last of each level.
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
            // The parent of a block is the one with its key.
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
    fn no_order_of_changes_makes_a_tree_grow_by_more_than_is_counted() {
        // The smallest, odd ones, and those of blocks of 1 and 4 KiB.
        for (seed, most) in (0..1000u64).zip([(6, 4), (7, 5), (40, 22), (168, 91)].into_iter().cycle()) {
            let dice = |n: u64, below: usize| (mix(seed << 20 | n) % below.max(1) as u64) as usize;
            let filled = if seed / 4 % 2 == 0 { most } else { (most.0 / 2, most.1 / 2) };
            let mut tree = Levels::of(1 + dice(0, 300), filled);
            let (before, levels) = (tree.blocks(), tree.0.len() as u32);
            for n in 0..1 + dice(1, 1500) as u64 {
                let leaves = tree.0[0].len();
                // Here and there, in one place, or where it splits a block.
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
        // Many split hardly more than there are blocks.
        assert!(growth(100_000, (500, 3), (168, 91)) < 4000);
    }
}
