//! How many of a group's free blocks are promised to users: these are in the volume's counter, where changes reserve
//! them.
//!
//! The free blocks of a group, as the superblock counts them, are its free extents, the AGFL, and the blocks of the
//! trees of free space and of reverse mappings. Of these are kept back:
//!
//! | for | as many as |
//! |---|---|
//! | the trees of free space | they have where each free block is an extent of its own, and each of their blocks half full |
//! | the AGFL | trees of the most levels need, and what the list may hold beyond that |
//! | the reverse-mapping tree | are set aside for it; all its blocks where it is larger than that |
//! | reference counts and free inodes | are set aside for their trees and not yet used |
//!
//! # Invariants
//! - The promise follows from the counters in the AGF and from what is set aside. Freeing a block never lowers it, and
//!   allocating one lowers it by one at most: so nobody's reservation is worth less by what others do.
//! - The volume's counter and all reservations together are the promises of all groups, up to debts: where a tree grew
//!   beyond what is set aside for it and nothing is left in the counter, the group's next gain pays for it. Debug
//!   builds check this when a volume is unmounted ([`audit`](super::audit)).

use std::sync::atomic::Ordering::Relaxed;

use format::Geometry;
use format::btree::{BnoBt, Btree, RmapBt};
use journal::engine::Transaction;

use super::freelist::{SLACK, needed};
use crate::group::{Group, LockedAg, agf};
use crate::log_costs::MaxBtreeSizes;

/// From which account allocated blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payer {
    /// A reservation of a user's change.
    Reservation,
    /// What the group keeps for the trees of reference counts and of free inodes.
    Group,
}

/// What the trees of a group may come to need: from the volume's geometry alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorstCase {
    /// Blocks of both trees of free space for each record, in units of 2^-32.
    slope: u64,
    /// Levels of each of them.
    space_levels: u32,
    /// Fewest keys in a node of the reverse-mapping tree; 0 without one.
    rmap_node: u64,
}

impl WorstCase {
    pub fn of(geometry: &Geometry) -> Self {
        let half = |most: usize| (most / 2).max(2) as u64;
        let (leaf, node) = (half(BnoBt::max_records(geometry)), half(BnoBt::max_keys(geometry)));
        // Of two trees, n / leaf leaves each, and above them the sum of a geometric series. Roots do not count.
        let slope = ((2 * node) << 32).div_ceil(leaf * (node - 1));
        let rmap_node = if geometry.features.rmapbt() { half(RmapBt::max_keys(geometry)) } else { 0 };
        Self { slope, space_levels: MaxBtreeSizes::derive(geometry).free_space.levels, rmap_node }
    }

    /// Blocks of both trees of free space, apart from their roots, that hold so many records.
    fn space_trees(&self, records: u64) -> u64 {
        (records * self.slope) >> 32
    }

    /// Levels of a reverse-mapping tree of so many blocks, all but the root half full.
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

    /// Blocks that the AGFL may hold: what trees of these levels need, the slack, and what merges in one change add.
    pub fn list(&self, rmap_blocks: u32) -> u32 {
        let (space, rmap) = (self.space_levels, self.rmap_levels(rmap_blocks));
        let trees = [space, space].into_iter().chain((rmap > 0).then_some(rmap));
        needed(trees) + SLACK + 3 * space.saturating_sub(1) + 2 * rmap.saturating_sub(1)
    }
}

impl Group {
    /// Free blocks for users that nobody has claimed. Exact under the AGF, otherwise a hint.
    pub(crate) fn unclaimed_promise(&self) -> u32 {
        self.promised.load(Relaxed).saturating_sub(self.claimed_of_promised())
    }

    /// Claimed blocks that the group promises. Blocks that came with a larger volume are claimed, and not promised yet.
    pub(crate) fn claimed_of_promised(&self) -> u32 {
        self.claimed.load(Relaxed).saturating_sub(self.withheld.load(Relaxed))
    }
}

impl LockedAg<'_> {
    /// Blocks of the reverse-mapping tree.
    pub(crate) fn mapping_tree_blocks(&self, tx: &Transaction) -> u32 {
        if self.group.geometry.features.rmapbt() { self.get(tx, agf!(rmapblocks)) } else { 0 }
    }

    /// See the module.
    pub(crate) fn promise(&self, tx: &Transaction) -> u32 {
        self.promise_with(tx, self.group.mappings.asked())
    }

    /// What the group would promise if it had set `mappings` blocks aside for the reverse-mapping tree.
    pub(super) fn promise_with(&self, tx: &Transaction, mappings: u32) -> u32 {
        let group = self.group;
        let rmap = group.geometry.features.rmapbt();
        let rmap_blocks = self.mapping_tree_blocks(tx);
        let mappings = if rmap { mappings.max(rmap_blocks) } else { 0 };
        let in_trees = u64::from(self.get(tx, agf!(btreeblks)));
        let list = u64::from(self.get(tx, agf!(flcount))) + u64::from(group.trimmed.load(Relaxed));
        let all = u64::from(self.get(tx, agf!(freeblks))) + list + in_trees;
        let withheld = group.withheld.load(Relaxed);
        let all = all.saturating_sub(withheld.into());
        // Between any two free extents lies a block in use.
        let length = group.geometry.ag_length(group.ag).saturating_sub(withheld);
        let records = all.min(u64::from(length) / 2 + 1);
        // The root of the reverse-mapping tree is counted with its blocks, and not with those that are free.
        let space_trees = in_trees.saturating_sub(rmap_blocks.saturating_sub(1).into());
        let worst = group.worst.space_trees(records) + u64::from(group.worst.list(mappings));
        let kept = worst.max(space_trees + list) + u64::from(mappings) + u64::from(group.metadata.left());
        u32::try_from(all.saturating_sub(kept)).unwrap_or(u32::MAX)
    }

    /// Blocks that may be allocated here now.
    pub(crate) fn room(&self, tx: &Transaction, payer: Payer) -> u32 {
        match payer {
            Payer::Reservation => self.promise(tx).saturating_sub(self.group.claimed_of_promised()),
            Payer::Group => {
                let have = self.get(tx, agf!(freeblks)).saturating_add(self.get(tx, agf!(flcount)));
                have.saturating_sub(self.list_need(tx)).saturating_sub(self.group.claimed.load(Relaxed))
            }
        }
    }

    /// What the group promises when the volume is opened.
    pub(crate) fn first_promise(&self, tx: &Transaction) -> u64 {
        let promise = self.promise(tx);
        self.group.promised.store(promise, Relaxed);
        promise.into()
    }

    /// Brings the volume's counter up to date after a change of free space or of its trees, of which a reservation has
    /// paid for `paid` blocks.
    pub(crate) fn settle(&self, tx: &Transaction, paid: u32) {
        let group = self.group;
        group.lower_mappings();
        let before = group.promised.load(Relaxed);
        let gain = |now: u32| i64::from(now) + i64::from(paid) - i64::from(before);
        let mut now = self.promise(tx);
        if group.mappings.changes() > 0 && gain(now) > 0 {
            self.raise_from(u32::try_from(gain(now)).unwrap_or(0));
            now = self.promise(tx);
        }
        let gained = gain(now);
        // Others have reserved what is lacking.
        let owes = gained < 0 && !group.free.try_sub(gained.unsigned_abs());
        group.promised.store(if owes { before.saturating_sub(paid) } else { now }, Relaxed);
        // Last: what may be reserved is promised.
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
    fn a_tree_is_as_high_as_half_full_nodes_make_it() {
        let worst = WorstCase { slope: 0, space_levels: 1, rmap_node: 10 };
        let levels = [0, 1, 2, 3, 22, 23, 222, 223].map(|blocks| worst.rmap_levels(blocks));
        assert_eq!(levels, [1, 1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(WorstCase { rmap_node: 0, ..worst }.rmap_levels(1000), 0);
    }
}
