//! Reserving space in the reverse-mapping btree before a change adds records to it.
//!
//! Each group sets as many blocks aside for the btree as one record for each of its blocks needs. Shared blocks have a
//! record for each owner, and a record that is split adds one without freeing a block. So a change that adds an owner,
//! or splits a record, reserves space in the btree first ([`MappingRoom`]). The reservation of the group grows for that
//! while the group has unclaimed free blocks and nobody else has reserved them.
//!
//! # Invariants
//! While a [`MappingRoom`] is held, the reservation of its group covers the btree, one record for each free block, and
//! what all changes that hold one may add: an allocation never finds that shared blocks have taken its part.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::FsBlock;
use format::btree::RmapBt;
use log::engine::{Error, Transaction};

use super::reservation::tree_size;
use crate::group::{Group, Groups, OpenAg};

/// Blocks that the tree of reference counts may take while several changes count at once.
const COUNTS_AT_ONCE: u32 = 16;
/// Blocks that are set aside beyond the need, so that the next changes find room without the AGF.
const AHEAD: u32 = 16;
const FULL: Error =
    Error::NoSpace { what: "another reverse mapping in the allocation group of shared blocks" };

/// Why a change adds a record to the reverse-mapping btree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingChange {
    /// The blocks get another owner. The caller could copy them instead, so this is refused first.
    AddOwner,
    /// A part of the blocks is unmapped, or converted between written and unwritten.
    SplitRecord,
}

/// Blocks that the reverse-mapping tree of a group may grow by for one change. Dropped when the change has been
/// committed, or given up.
#[derive(Debug)]
pub struct MappingRoom {
    group: Arc<Group>,
    blocks: u32,
}

impl Drop for MappingRoom {
    fn drop(&mut self) {
        self.group.mappings.end_change(self.blocks);
    }
}

impl Groups {
    /// Reserves space in the reverse-mapping btree of the group in which `start` lies; `None` where the volume has no
    /// such btree. The transaction of the change has locked no AGF yet. `tx` is a reader: every buffer that it locks
    /// here is released before this returns.
    ///
    /// # Errors
    /// No space. Damage; what reading meets.
    ///
    /// # Locking
    /// The AGF of the extent's group, where more must be set aside.
    pub fn room_for_mapping(
        &self,
        tx: &mut Transaction,
        start: FsBlock,
        change: MappingChange,
    ) -> Result<Option<MappingRoom>, Error> {
        let (group, _) = self.of_block(start, 1)?;
        if !self.geometry().features.rmapbt() {
            return if group.backs_owners() { Ok(None) } else { Err(FULL) };
        }
        // A record is added, or one is cut: the tree splits once at each level, and may get another.
        let blocks = group.worst.rmap_levels(group.mappings.asked().max(group.mappings.used())) + 1;
        group.mappings.begin_change(blocks);
        let room = MappingRoom { group: Arc::clone(group), blocks };
        if !group.backs_owners() || change == MappingChange::AddOwner && group.has_many_owners() {
            return Err(FULL);
        }
        if group.covers_mappings() {
            return Ok(Some(room));
        }
        let open = group.lock(tx)?;
        let raised = open.raise_mappings(tx);
        tx.release_clean();
        if raised { Ok(Some(room)) } else { Err(FULL) }
    }
}

impl Group {
    /// Blocks that the reservation must have: see the invariant of the module. Records of free blocks may go to leaves
    /// that are full, and split more of them than is counted here; then only the blocks that the group has set aside
    /// for reference counts are left.
    fn mappings_needed(&self) -> u32 {
        // In this order: a change that ends in between is counted in one of both.
        let in_change = u64::from(self.mappings.in_change());
        let used = u64::from(self.mappings.used());
        let free = self.freeblks.load(Relaxed).saturating_sub(self.withheld.load(Relaxed)).into();
        let most = in_change + used + tree_size::<RmapBt>(&self.geometry, free);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    fn covers_mappings(&self) -> bool {
        self.mappings_needed() <= self.mappings.asked()
    }

    /// Whether there are free blocks for the trees of owners. The counts say what is kept for the trees; whoever wrote
    /// the volume before may have filled the group all the same.
    fn backs_owners(&self) -> bool {
        let free = self.freeblks.load(Relaxed).saturating_sub(self.claimed.load(Relaxed));
        let counts = self.metadata.left().min(COUNTS_AT_ONCE);
        free >= self.mappings.in_change().saturating_add(counts)
    }

    /// Whether owners have taken most of what a volume of this size sets aside. The last tenth is left to those who cut
    /// records: a new owner can have copies instead.
    fn has_many_owners(&self) -> bool {
        let usual = self.mappings.usual();
        let kept = usual / 10 + 2 * self.worst.rmap_levels(usual);
        self.mappings.used().saturating_add(self.mappings.in_change()).saturating_add(kept) > usual
    }

    /// Gives back what the reservation has beyond its usual size and no longer needs. The caller holds the AGF, and
    /// updates the volume's counter of free blocks afterwards.
    pub(crate) fn lower_mappings(&self) {
        let raised = self.mappings.raised();
        if raised > 0 {
            let needed = self.mappings_needed().saturating_add(AHEAD).saturating_sub(self.mappings.usual());
            self.mappings.raise(raised.min(needed));
            // A change may have begun in between, and been covered by the size before.
            if !self.covers_mappings() {
                self.mappings.raise(raised);
            }
        }
    }
}

impl OpenAg<'_> {
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
