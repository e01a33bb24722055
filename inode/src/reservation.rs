//! How much log space changes of inodes need.
//!
//! Every block that a change may log is counted whole, with the words that name its chunks. This is more than is ever
//! used at once; what is not used is given back at the commit.

use ag::AgLogCosts;
use ag::log_costs::BtreeSize;
use format::Geometry;
use format::btree::{BmBt, BnoBt, Btree, InoBt, MAX_LEVELS, RmapBt};
use journal::engine::LogReservation;

use crate::contents::{CHANGES_AT_ONCE, FINISHED_AT_ONCE, RUNS_AT_ONCE};
use crate::inactive::FREED_AT_ONCE;

/// Bytes around a logged block: its format with the map of chunks, and operation headers of a few regions.
const BLOCK_EXTRA: u32 = 128 + 64;
/// The fixed regions of an inode item, with their headers.
const INODE_EXTRA: u32 = 256;

/// An intent with a few extents, or its done item.
const INTENT: u32 = 160;

/// For one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// An inode alone: a commit of times, owner, mode.
    pub inode: LogReservation,
    /// Unmapping up to two extents of a fork and freeing them.
    pub unmap: LogReservation,
    /// The same where files may share them.
    pub unmap_shared: LogReservation,
    /// Changing the map of one fork, after an intent, with what follows it; or a step of exchanging two files' ranges.
    pub map: LogReservation,
    /// Blocks that a fork's tree may take when one extent is mapped or unmapped.
    pub map_blocks: u32,
    /// Levels of a fork's tree at most, and most records of its leaves and keys of its nodes.
    map_shape: (u32, u64, u64),
    /// A step of changing the map of a file's contents, with what follows it.
    pub contents: LogReservation,
    /// The same for several small files at once, whose maps are in their inodes.
    pub small_files: LogReservation,
    /// Freeing inodes that are on a list of unlinked ones, as many as are freed at once.
    pub free_inodes: LogReservation,
    /// Setting one bucket of an AGI.
    pub bucket: LogReservation,
}

/// So many extents of a file always lie in its inode: no attribute takes that room.
pub const ALWAYS_INLINE: u64 = 3;
/// No fork has as many extents: with it, [`Reservations::map_blocks_for`] holds whatever else comes to the map.
pub const ANY_EXTENTS: u64 = 1 << 48;

/// Levels of a tree of `records` records whose blocks are half full.
fn levels(records: u64, leaf_max: usize, node_max: usize) -> u32 {
    let mut blocks = records.div_ceil((leaf_max / 2).max(1) as u64);
    let mut levels = 1;
    while blocks > 1 && levels < MAX_LEVELS {
        blocks = blocks.div_ceil((node_max / 2).max(2) as u64);
        levels += 1;
    }
    levels
}

/// Levels of the tree `T`, where it has that many records.
fn levels_of<T: Btree>(geometry: &Geometry, records: u64) -> u32 {
    levels(records, T::max_records(geometry), T::max_keys(geometry))
}

impl Reservations {
    /// For this volume.
    pub fn of(geometry: &Geometry) -> Self {
        let block = geometry.block_size + BLOCK_EXTRA;
        let sector = geometry.sector_size + BLOCK_EXTRA;
        let cluster_link = 2 * (128 + BLOCK_EXTRA);
        let inode = geometry.inode_size + INODE_EXTRA;
        let group = u64::from(geometry.ag_blocks);
        // A split or join of each level changes the block, its new or old sibling and the parent.
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
        // Each link of a chain frees, counts, or writes reverse mappings down; none is larger.
        let link = costs.largest().max(costs.owners());
        let chain = |bytes: u32, transactions| LogReservation { bytes: bytes.max(link), transactions };
        // Of a map, so many records change; each may be two. Blocks for its tree, and claimed ones, come from one AG.
        let bound = BtreeSize { levels: map_levels, blocks: u64::MAX };
        let changes = CHANGES_AT_ONCE;
        let contents = 2 * inode
            + costs.tree(bound, 2 * changes, changes)
            + costs.space(2 + map_levels)
            + 4 * changes * INTENT;
        let files = FINISHED_AT_ONCE as u32;
        let small_files = files * (inode + 2 * INTENT) + costs.space(RUNS_AT_ONCE as u32);
        let once = |bytes| LogReservation { bytes, transactions: 1 };
        let metadata_blocks = 16 * (BLOCK_EXTRA + 64);
        Self {
            inode: once(inode),
            // The unmapping, then the intents' work for two extents and tree blocks.
            unmap: LogReservation {
                bytes: inode + extent_map + metadata_blocks + 2 * (headers + free_extent),
                transactions: 3,
            },
            unmap_shared: chain(inode + extent_map, 3),
            // Two inodes, a tree that takes a block for each of its levels, and intents: of an exchange there are six.
            map: LogReservation {
                bytes: 2 * inode + extent_map + 2 * (headers + free_extent) + 8 * INTENT,
                transactions: 1,
            },
            map_blocks: map_levels + 1,
            map_shape: (map_levels, BmBt::max_records(geometry) as u64, BmBt::max_keys(geometry) as u64),
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
    /// Blocks that the tree of a file's contents may take when so many records come to the `extents` that it maps,
    /// at worst each to another leaf.
    ///
    /// A block splits when it is full, and leaves two that are half full. So on each level there are no more splits
    /// than new entries, and no more than blocks that are full already, or become full by half a block of new entries.
    /// This holds as long as no record goes: blocks that join become full without new entries, and an extent map that
    /// fits the inode again gives its block back. Writeback lets records go only where it has reserved as much again
    /// for what is left ([`contents::finish`](crate::contents::finish())).
    pub fn map_blocks_for(&self, extents: u64, records: u64) -> u64 {
        let (levels, leaf, node) = self.map_shape;
        let all = extents.saturating_add(records);
        if records == 0 || all <= ALWAYS_INLINE {
            return 0;
        }
        // The list leaves the inode, to a leaf that does not split.
        if all <= leaf {
            return 1;
        }
        let (mut sum, mut entries, mut new, mut most) = (1, extents, records, leaf);
        for _ in 0..levels {
            let half = (most / 2).max(2);
            new = new.min((entries.div_ceil(2) + new) / (half - 1));
            // The root of the level may be pushed down, too.
            sum += new + 1;
            (entries, most) = (entries.div_ceil(half), node);
            if new == 0 {
                break;
            }
        }
        sum
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
