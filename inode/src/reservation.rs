//! Log and block reservations of inode changes.
//!
//! Every block that a change may log counts in full, with its log headers. That is more than is ever used; the rest is
//! returned at the commit.

use ag::AgLogCosts;
use ag::log_costs::BtreeSize;
use format::Geometry;
use format::btree::{BmBt, BnoBt, Btree, InoBt, MAX_LEVELS, RmapBt};
use journal::engine::LogReservation;

use crate::contents::tuning::{CHANGES_AT_ONCE, FINISHED_AT_ONCE, RUNS_AT_ONCE};
use crate::inactive::FREED_AT_ONCE;

/// Overhead of a logged block: buffer format with its bitmap, and operation headers of a few regions.
const BLOCK_EXTRA: u32 = 128 + 64;
/// Overhead of the fixed regions of an inode item.
const INODE_EXTRA: u32 = 256;

/// An intent item with a few extents, or its done item.
const INTENT: u32 = 160;

/// The reservations of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// A commit of an inode alone: times, owner, mode.
    pub inode: LogReservation,
    /// Unmapping and freeing up to two extents of a fork.
    pub unmap: LogReservation,
    /// Unmapping up to two extents of a fork that files may share, and releasing their blocks.
    pub unmap_shared: LogReservation,
    /// A deferred change of one fork's map with its intents; or one step of an exchange of ranges.
    pub map: LogReservation,
    /// The most blocks that a fork's btree allocates when one extent is mapped or unmapped.
    pub map_blocks: u32,
    map_shape: MapBtreeShape,
    /// One step of a change of a file's map, with its deferred operations.
    pub contents: LogReservation,
    /// Finishing writes of several small files, whose extent lists are in their inodes.
    pub small_files: LogReservation,
    /// Freeing unlinked inodes, as many as one transaction frees.
    pub free_inodes: LogReservation,
    /// Changing one bucket of an AGI's unlinked lists.
    pub bucket: LogReservation,
}

/// The shape of the largest extent btree of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MapBtreeShape {
    levels: u32,
    /// Records of a leaf.
    leaf: u64,
    /// Keys of a node.
    node: u64,
}

/// Extents that always fit an inode: the attribute fork never takes their space.
pub const ALWAYS_INLINE: u64 = 3;
/// More extents than any fork has. With it, [`Reservations::map_blocks_for`] is an upper bound for any map.
pub const ANY_EXTENTS: u64 = 1 << 48;

/// Height of a btree of `records` records in half-full blocks.
fn levels(records: u64, leaf_max: usize, node_max: usize) -> u32 {
    let mut blocks = records.div_ceil((leaf_max / 2).max(1) as u64);
    let mut levels = 1;
    while blocks > 1 && levels < MAX_LEVELS {
        blocks = blocks.div_ceil((node_max / 2).max(2) as u64);
        levels += 1;
    }
    levels
}

/// Height of the btree `T` with `records` records.
fn levels_of<T: Btree>(geometry: &Geometry, records: u64) -> u32 {
    levels(records, T::max_records(geometry), T::max_keys(geometry))
}

impl Reservations {
    /// The reservations for this geometry.
    pub fn of(geometry: &Geometry) -> Self {
        let block = geometry.block_size + BLOCK_EXTRA;
        let sector = geometry.sector_size + BLOCK_EXTRA;
        let cluster_link = 2 * (128 + BLOCK_EXTRA);
        let inode = geometry.inode_size + INODE_EXTRA;
        let group = u64::from(geometry.ag_blocks);
        // A split or join on each level changes the block, its sibling, and the parent.
        let tree = |levels: u32| 2 * levels * block;
        let mut free_extent = 2 * tree(levels_of::<BnoBt>(geometry, group / 2));
        if geometry.features.rmapbt() {
            free_extent += tree(levels_of::<RmapBt>(geometry, group));
        }
        let headers = 3 * sector + block; // AGF, AGFL, AGI; and the superblock's counters
        let map_levels = levels_of::<BmBt>(geometry, geometry.foreseen.min(1 << 32));
        let extent_map = tree(map_levels);
        let inode_trees = 2 * tree(levels_of::<InoBt>(geometry, group >> 2));
        let costs = AgLogCosts::derive(geometry);
        // Each deferred operation frees, counts, or updates reverse mappings; none is larger.
        let link = costs.largest().max(costs.owners());
        let chain = |bytes: u32, transactions| LogReservation { bytes: bytes.max(link), transactions };
        // Records of the map that change; each may become two. Blocks for its btree, and claimed ones, come from one
        // AG.
        let bound = BtreeSize { levels: map_levels, blocks: u64::MAX };
        let changes = CHANGES_AT_ONCE;
        let contents = 2 * inode
            + costs.tree(bound, 2 * changes, changes)
            + costs.space(2 + map_levels)
            + 4 * changes * INTENT;
        let files = FINISHED_AT_ONCE as u32;
        let small_files = files * (inode + 2 * INTENT) + costs.shared_out(RUNS_AT_ONCE as u32);
        let once = |bytes| LogReservation { bytes, transactions: 1 };
        let metadata_blocks = 16 * (BLOCK_EXTRA + 64);
        Self {
            inode: once(inode),
            // The unmapping; then the deferred operations for two extents and btree blocks.
            unmap: LogReservation {
                bytes: inode + extent_map + metadata_blocks + 2 * (headers + free_extent),
                transactions: 3,
            },
            unmap_shared: chain(inode + extent_map, 3),
            // Two inodes, a btree that allocates a block on each level, and intents: an exchange has six.
            map: LogReservation {
                bytes: 2 * inode + extent_map + 2 * (headers + free_extent) + 8 * INTENT,
                transactions: 1,
            },
            map_blocks: map_levels + 1,
            map_shape: MapBtreeShape {
                levels: map_levels,
                leaf: BmBt::max_records(geometry) as u64,
                node: BmBt::max_keys(geometry) as u64,
            },
            contents: chain(contents, 3),
            small_files: chain(small_files, 3),
            free_inodes: LogReservation {
                bytes: FREED_AT_ONCE as u32 * (inode + cluster_link)
                    + headers
                    + inode_trees
                    + 2 * free_extent
                    + metadata_blocks,
                transactions: 3,
            },
            bucket: once(sector),
        }
    }
}

impl Reservations {
    /// The most blocks that a file's extent btree allocates when `records` records are added to `extents` existing
    /// ones, at worst each to another leaf.
    ///
    /// A block splits when it is full, into two half-full ones. So the splits of a level are bounded by the number of
    /// new entries, and by the blocks that are full already or become full by half a block of new entries. This holds
    /// while no record is removed: joined blocks become full without new entries, and an extent list that fits the
    /// inode again frees its block. Writeback removes records only if it has reserved the same amount again for the
    /// rest ([`contents::finish`](crate::contents::finish())).
    pub fn map_blocks_for(&self, extents: u64, records: u64) -> u64 {
        let MapBtreeShape { levels, leaf, node } = self.map_shape;
        let all = extents.saturating_add(records);
        if records == 0 || all <= ALWAYS_INLINE {
            return 0;
        }
        // The list moves from the inode to a leaf that does not split.
        if all <= leaf {
            return 1;
        }
        let (mut blocks, mut entries, mut new, mut capacity) = (1, extents, records, leaf);
        for _ in 0..levels {
            let half = (capacity / 2).max(2);
            new = new.min((entries.div_ceil(2) + new) / (half - 1));
            // The root of the level may move down, too.
            blocks += new + 1;
            (entries, capacity) = (entries.div_ceil(half), node);
            if new == 0 {
                break;
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_as_high_as_half_full_blocks_make_them() {
        assert_eq!(levels(0, 10, 10), 1);
        assert_eq!(levels(5, 10, 10), 1);
        assert_eq!(levels(6, 10, 10), 2);
        assert_eq!(levels(26, 10, 10), 3);
        assert_eq!(levels(u64::MAX, 2, 2), MAX_LEVELS);
    }
}
