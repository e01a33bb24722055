//! How many of an AG's free blocks it contributes to the volume's counter, where changes reserve them.
//!
//! The free blocks of an AG, as the superblock counts them, are its free extents, the AGFL, and the blocks of the
//! free-space trees and the rmapbt. The AG keeps back:
//!
//! | for | as many blocks as |
//! |---|---|
//! | the free-space trees | they have if each free block is an extent of its own and each of their blocks is half full |
//! | the AGFL | the highest trees need, and the slack of the list |
//! | the rmapbt | are reserved for it; all its blocks if it is larger than that |
//! | the refcountbt and the finobt | are reserved for them and not yet used |
//!
//! # Invariants
//! - The contribution follows from the counters in the AGF and the per-AG reservations. Freeing a block never lowers
//!   it, and allocating one lowers it by at most one: so changes of others never devalue a reservation.
//! - The volume's counter and all reservations together are the contributions of all AGs, up to debts: if a tree grew
//!   beyond its reservation and the counter is empty, the AG's next gain pays for it. Debug builds check this when a
//!   volume is unmounted ([`audit`](super::audit)).

use std::sync::atomic::Ordering::Relaxed;

use format::Geometry;
use format::btree::{BnoBt, Btree, RmapBt};
use journal::engine::Transaction;

use super::freelist::{SLACK, min_freelist_for};
use crate::group::{Group, LockedAg, agf};
use crate::log_costs::MaxBtreeSizes;

/// The account that pays for allocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payer {
    /// The reservation of a user's change.
    Reservation,
    /// The per-AG reservation for the refcountbt and finobt.
    Group,
}

/// Worst-case sizes of an AG's trees, from the volume's geometry alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorstCase {
    /// Blocks of both free-space trees for each record, in units of 2^-32.
    slope: u64,
    /// Levels of each of them.
    space_levels: u32,
    /// Minimum number of keys in an rmapbt node; 0 without one.
    rmap_node: u64,
}

impl WorstCase {
    pub fn of(geometry: &Geometry) -> Self {
        let half = |most: usize| (most / 2).max(2) as u64;
        let (leaf, node) = (half(BnoBt::max_records(geometry)), half(BnoBt::max_keys(geometry)));
        // n / leaf leaves in each of two trees, and above them the sum of a geometric series. Roots do not count.
        let slope = ((2 * node) << 32).div_ceil(leaf * (node - 1));
        let rmap_node = if geometry.features.rmapbt() { half(RmapBt::max_keys(geometry)) } else { 0 };
        Self { slope, space_levels: MaxBtreeSizes::derive(geometry).free_space.levels, rmap_node }
    }

    /// Blocks of both free-space trees, without their roots, for this number of records.
    fn space_trees(&self, records: u64) -> u64 {
        (records * self.slope) >> 32
    }

    /// Levels of an rmapbt of `blocks` blocks, all but the root half full.
    pub fn rmap_levels(&self, blocks: u32) -> u32 {
        if self.rmap_node == 0 {
            return 0;
        }
        let (mut levels, mut least, mut next) = (1, 1, 2);
        while least + next <= u64::from(blocks) {
            (levels, least, next) = (levels + 1, least + next, next * self.rmap_node);
        }
        levels
    }

    /// Maximum length of the AGFL: what trees of these levels need, the slack, and what merges in one change add.
    pub fn max_freelist(&self, rmap_blocks: u32) -> u32 {
        let (space, rmap) = (self.space_levels, self.rmap_levels(rmap_blocks));
        let trees = [space, space].into_iter().chain((rmap > 0).then_some(rmap));
        min_freelist_for(trees) + SLACK + 3 * space.saturating_sub(1) + 2 * rmap.saturating_sub(1)
    }
}

impl Group {
    /// Free blocks for users that are not claimed. Exact under the AGF, otherwise a hint.
    pub(crate) fn unclaimed_contribution(&self) -> u32 {
        self.contributed.load(Relaxed).saturating_sub(self.claimed_of_contribution())
    }

    /// Claimed blocks among those that the AG contributes. Blocks of a grown volume are claimed before they are
    /// contributed.
    pub(crate) fn claimed_of_contribution(&self) -> u32 {
        self.claimed.load(Relaxed).saturating_sub(self.withheld.load(Relaxed))
    }
}

impl LockedAg<'_> {
    /// Number of rmapbt blocks.
    pub(crate) fn rmap_tree_blocks(&self, tx: &Transaction) -> u32 {
        if self.group.geometry.features.rmapbt() { self.get(tx, agf!(rmapblocks)) } else { 0 }
    }

    /// The AG's contribution now: see the module documentation.
    pub(crate) fn contribution(&self, tx: &Transaction) -> u32 {
        self.contribution_with(tx, self.group.rmap_reservation.asked())
    }

    /// The contribution if `rmap_reserved` blocks were reserved for the rmapbt.
    pub(super) fn contribution_with(&self, tx: &Transaction, rmap_reserved: u32) -> u32 {
        let group = self.group;
        let rmap = group.geometry.features.rmapbt();
        let rmap_blocks = self.rmap_tree_blocks(tx);
        let rmap_reserved = if rmap { rmap_reserved.max(rmap_blocks) } else { 0 };
        let in_trees = u64::from(self.get(tx, agf!(btreeblks)));
        let list = u64::from(self.get(tx, agf!(flcount))) + u64::from(group.trimmed.load(Relaxed));
        let all = u64::from(self.get(tx, agf!(freeblks))) + list + in_trees;
        let withheld = group.withheld.load(Relaxed);
        let all = all.saturating_sub(withheld.into());
        // Between any two free extents there is a block in use.
        let length = group.geometry.ag_length(group.ag).saturating_sub(withheld);
        let records = all.min(u64::from(length) / 2 + 1);
        // The root of the rmapbt is counted with its blocks, and not with the free ones.
        let space_trees = in_trees.saturating_sub(rmap_blocks.saturating_sub(1).into());
        let worst = group.worst.space_trees(records) + u64::from(group.worst.max_freelist(rmap_reserved));
        let kept = worst.max(space_trees + list)
            + u64::from(rmap_reserved)
            + u64::from(group.metadata_reservation.left());
        u32::try_from(all.saturating_sub(kept)).unwrap_or(u32::MAX)
    }

    /// Blocks that may be allocated in this AG now.
    pub(crate) fn allocatable(&self, tx: &Transaction, payer: Payer) -> u32 {
        match payer {
            Payer::Reservation => self.contribution(tx).saturating_sub(self.group.claimed_of_contribution()),
            Payer::Group => {
                let have = self.get(tx, agf!(freeblks)).saturating_add(self.get(tx, agf!(flcount)));
                have.saturating_sub(self.min_freelist(tx)).saturating_sub(self.group.claimed.load(Relaxed))
            }
        }
    }

    /// Sets the contribution when the volume is opened, and returns it.
    pub(crate) fn publish_contribution(&self, tx: &Transaction) -> u64 {
        let promise = self.contribution(tx);
        self.group.contributed.store(promise, Relaxed);
        promise.into()
    }

    /// Updates the volume's counter after a change of free space or of its trees. A reservation has paid for `paid`
    /// blocks.
    pub(crate) fn update_contribution(&self, tx: &Transaction, paid: u32) {
        let group = self.group;
        group.lower_rmap_reservation();
        let before = group.contributed.load(Relaxed);
        let gain = |now: u32| i64::from(now) + i64::from(paid) - i64::from(before);
        let mut now = self.contribution(tx);
        if group.rmap_reservation.changes() > 0 && gain(now) > 0 {
            self.raise_from(u32::try_from(gain(now)).unwrap_or(0));
            now = self.contribution(tx);
        }
        let gained = gain(now);
        // The missing blocks are reserved by others: a debt.
        let owes = gained < 0 && !group.free.try_sub(gained.unsigned_abs());
        group.contributed.store(if owes { before.saturating_sub(paid) } else { now }, Relaxed);
        // Last, so that what may be reserved is always contributed.
        if gained > 0 {
            group.free.add(gained.unsigned_abs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::testing;

    #[test]
    fn the_bound_covers_both_trees_and_grows_by_one_block_at_most() {
        for log in 10..=16 {
            let mut geometry = testing::geometry();
            (geometry.block_size, geometry.block_log) = (1 << log, log);
            let worst = WorstCase::of(&geometry);
            let mut before = 0;
            for records in 0..300_000u64 {
                let bound = worst.space_trees(records);
                assert!((before..=before + 1).contains(&bound), "{records} records");
                before = bound;
                let (leaf, node) = (BnoBt::max_records(&geometry) / 2, BnoBt::max_keys(&geometry) / 2);
                let mut level = records / leaf as u64;
                let mut least = 0;
                while level > 1 {
                    least += level;
                    level /= node as u64;
                }
                assert!(bound >= 2 * least, "{records} records, blocks of {} bytes", 1 << log);
            }
        }
    }

    #[test]
    fn height_is_that_of_half_full_nodes() {
        let worst = WorstCase { slope: 0, space_levels: 1, rmap_node: 10 };
        let levels = [0, 1, 2, 3, 22, 23, 222, 223].map(|blocks| worst.rmap_levels(blocks));
        assert_eq!(levels, [1, 1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(WorstCase { rmap_node: 0, ..worst }.rmap_levels(1000), 0);
    }
}
