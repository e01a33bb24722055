//! Records of a block and levels of a tree.
//!
//! A block other than a root is at least half full, so the height of a tree follows from the number of its records;
//! each tree has its own worst case of that number (kernel, `xfs_btree_compute_maxlevels` and its callers, by their
//! results).

use super::VolumeShape;
use crate::btree::{BmBt, BmapKey, BmapRoot, BnoBt, Btree, FinoBt, RefcountBt, RmapBt};
use crate::geometry::INODES_PER_CHUNK;
use crate::inode::ForkKind;
use crate::ondisk::{OnDisk, U64};

/// Most records of a leaf of `T`, for a block of that many bytes.
pub fn max_records<T: Btree>(block_size: u32) -> u32 {
    (block_size.saturating_sub(T::Header::SIZE as u32)) / T::Record::SIZE as u32
}

/// Most keys of a node of `T`.
pub fn max_keys<T: Btree>(block_size: u32) -> u32 {
    (block_size.saturating_sub(T::Header::SIZE as u32)) / (T::Key::SIZE + T::Pointer::SIZE) as u32
}

/// Fewest records of a leaf that is not the root.
pub fn min_records<T: Btree>(block_size: u32) -> u32 {
    max_records::<T>(block_size) / 2
}

/// Fewest keys of a node that is not the root.
pub fn min_keys<T: Btree>(block_size: u32) -> u32 {
    max_keys::<T>(block_size) / 2
}

/// Levels of a tree of type `T` with so many records, every block only as full as it must be; at least 1.
pub fn levels_for<T: Btree>(block_size: u32, records: u64) -> u32 {
    // A node of fewer than two keys would not be a tree.
    let (leaf, node) = (min_records::<T>(block_size).max(1), min_keys::<T>(block_size).max(2));
    let mut blocks = records.div_ceil(leaf.into());
    let mut levels = 1;
    while blocks > 1 {
        blocks = blocks.div_ceil(node.into());
        levels += 1;
    }
    levels
}

/// Blocks of a tree of type `T` with so many records, every block only as full as it must be.
pub fn blocks_for<T: Btree>(block_size: u32, records: u64) -> u64 {
    let (leaf, node) = (min_records::<T>(block_size).max(1), min_keys::<T>(block_size).max(2));
    let mut blocks = records.div_ceil(leaf.into());
    let mut total = blocks;
    while blocks > 1 {
        blocks = blocks.div_ceil(node.into());
        total += blocks;
    }
    total
}

/// Most levels of a tree of type `T` that takes at most so many blocks: a root of two, every other node only as full as
/// it must be; at least 1.
pub fn levels_within<T: Btree>(block_size: u32, blocks: u32) -> u32 {
    let node = u64::from(min_keys::<T>(block_size).max(2));
    let (mut levels, mut width, mut total) = (1, 2, 3u64);
    while total <= blocks.into() {
        levels += 1;
        width *= node;
        total += width;
    }
    levels
}

impl VolumeShape {
    /// Highest free space tree: every other block of the AG free.
    pub fn alloc_levels(&self) -> u32 {
        levels_for::<BnoBt>(self.block_size, u64::from(self.ag_blocks).div_ceil(2))
    }

    /// Highest inode tree: every inode number of the AG in use.
    pub fn inode_levels(&self) -> u32 {
        let inodes = 1u64 << (self.ag_block_log() + self.inodes_per_block().max(1).ilog2());
        levels_for::<FinoBt>(self.block_size, inodes / u64::from(INODES_PER_CHUNK))
    }

    /// Highest reverse-mapping tree: where no block is shared, a mapping for each block. Shared blocks have more than
    /// one mapping, and then only the AG's room for the tree itself limits it.
    pub fn rmap_levels(&self) -> u32 {
        if self.features.reflink() {
            levels_within::<RmapBt>(self.block_size, self.ag_blocks)
        } else {
            levels_for::<RmapBt>(self.block_size, self.ag_blocks.into())
        }
    }

    /// Highest reference-count tree: a record for each block.
    pub fn refcount_levels(&self) -> u32 {
        levels_for::<RefcountBt>(self.block_size, self.ag_blocks.into())
    }

    /// Highest tree of a fork: as many extents as the inode's counter can tell, and the smallest root.
    pub fn bmap_levels(&self, fork: ForkKind) -> u32 {
        let wide = self.features.nrext64();
        let extents = match fork {
            ForkKind::Data if wide => (1u64 << 48) - 1,
            ForkKind::Data => (1 << 31) - 1,
            ForkKind::Attr if wide => (1 << 32) - 1,
            ForkKind::Attr => (1 << 15) - 1,
        };
        let leaf = min_records::<BmBt>(self.block_size).max(1);
        let node = min_keys::<BmBt>(self.block_size).max(2);
        let root = smallest_bmap_root(fork);
        let mut blocks = extents.div_ceil(leaf.into());
        let mut levels = 1;
        while blocks > 1 {
            blocks = if blocks <= root { 1 } else { blocks.div_ceil(node.into()) };
            levels += 1;
        }
        levels
    }
}

/// Pointers of the smallest root of a fork's tree: three of a data fork, two of an attribute fork (format document,
/// "Extent list", on the least size of each fork).
const fn smallest_bmap_root(fork: ForkKind) -> u64 {
    match fork {
        ForkKind::Data => 3,
        ForkKind::Attr => 2,
    }
}

/// Bytes of the root of a fork's tree with so many pointers.
pub const fn bmap_root_bytes(pointers: u32) -> u32 {
    BmapRoot::SIZE as u32 + pointers * (BmapKey::SIZE + U64::SIZE) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Features, incompat};

    fn shape(block_size: u32, ag_blocks: u32) -> VolumeShape {
        VolumeShape {
            block_size,
            sector_size: 512,
            inode_size: 512,
            dir_block_size: block_size.max(4096),
            ag_blocks,
            log_stripe_unit: 0,
            features: Features { incompat: incompat::NREXT64, ..Features::default() },
        }
    }

    #[test]
    fn a_full_leaf_is_one_level_and_one_record_more_than_its_least_is_two() {
        let least = u64::from(min_records::<BnoBt>(4096));
        assert_eq!(levels_for::<BnoBt>(4096, 0), 1);
        assert_eq!(levels_for::<BnoBt>(4096, least), 1);
        assert_eq!(levels_for::<BnoBt>(4096, least + 1), 2);
        assert_eq!(blocks_for::<BnoBt>(4096, least + 1), 3);
    }

    #[test]
    fn a_tree_is_as_high_as_its_blocks_allow() {
        let node = min_keys::<RmapBt>(4096);
        let least = 1 + 2 + 2 * node;
        for (blocks, levels) in [(0, 1), (1, 1), (2, 1), (3, 2), (least - 1, 2), (least, 3), (u32::MAX, 7)] {
            assert_eq!(levels_within::<RmapBt>(4096, blocks), levels, "{blocks}");
        }
    }

    #[test]
    fn levels_follow_from_the_size_of_an_ag() {
        let large = shape(4096, 1 << 28 >> 1);
        assert_eq!((large.alloc_levels(), large.refcount_levels()), (4, 4));
        assert_eq!((large.bmap_levels(ForkKind::Data), large.bmap_levels(ForkKind::Attr)), (7, 5));
        let small = shape(65536, 256);
        assert_eq!((small.alloc_levels(), small.inode_levels(), small.rmap_levels()), (1, 1, 1));
    }
}
