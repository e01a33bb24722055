//! Records per block and btree heights.
//!
//! Every block except the root is at least half full, so the maximum height of a tree follows from the maximum number
//! of its records; each tree has its own worst case (kernel: `xfs_btree_compute_maxlevels` and its callers, compared by
//! their results).

use super::VolumeShape;
use crate::btree::{BmBt, BnoBt, Btree, FinoBt, RefcountBt, RmapBt};
use crate::geometry::INODES_PER_CHUNK;
use crate::inode::ForkKind;
use crate::ondisk::OnDisk;

/// Maximum number of records of a leaf of `T` with this block size.
pub fn max_records<T: Btree>(block_size: u32) -> u32 {
    (block_size.saturating_sub(T::Header::SIZE as u32)) / T::Record::SIZE as u32
}

/// Maximum number of keys of a node of `T`.
pub fn max_keys<T: Btree>(block_size: u32) -> u32 {
    (block_size.saturating_sub(T::Header::SIZE as u32)) / (T::Key::SIZE + T::Pointer::SIZE) as u32
}

/// Minimum number of records of a leaf other than the root.
pub fn min_records<T: Btree>(block_size: u32) -> u32 {
    max_records::<T>(block_size) / 2
}

/// Minimum number of keys of a node other than the root.
pub fn min_keys<T: Btree>(block_size: u32) -> u32 {
    max_keys::<T>(block_size) / 2
}

/// Maximum height of a tree of type `T` with this number of records; at least 1.
pub fn levels_for<T: Btree>(block_size: u32, records: u64) -> u32 {
    // A node has at least two keys.
    let (leaf, node) = (min_records::<T>(block_size).max(1), min_keys::<T>(block_size).max(2));
    let mut blocks = records.div_ceil(leaf.into());
    let mut levels = 1;
    while blocks > 1 {
        blocks = blocks.div_ceil(node.into());
        levels += 1;
    }
    levels
}

/// Maximum height of a tree of type `T` with at most this number of blocks: a root with two children, all other nodes
/// at their minimum; at least 1.
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
    /// Maximum height of the free space btrees: every second block of the AG is free.
    pub fn alloc_levels(&self) -> u32 {
        levels_for::<BnoBt>(self.block_size, u64::from(self.ag_blocks).div_ceil(2))
    }

    /// Maximum height of the inode btrees: every inode number of the AG is in use.
    pub fn inode_levels(&self) -> u32 {
        let inodes = 1u64 << (self.ag_block_log() + self.inodes_per_block().max(1).ilog2());
        levels_for::<FinoBt>(self.block_size, inodes / u64::from(INODES_PER_CHUNK))
    }

    /// Maximum height of the rmapbt: without shared blocks, one mapping per block. Shared blocks have more than one
    /// mapping, and then only the blocks of the AG limit the tree.
    pub fn rmap_levels(&self) -> u32 {
        if self.features.reflink() {
            levels_within::<RmapBt>(self.block_size, self.ag_blocks)
        } else {
            levels_for::<RmapBt>(self.block_size, self.ag_blocks.into())
        }
    }

    /// Maximum height of the refcountbt: one record per block.
    pub fn refcount_levels(&self) -> u32 {
        levels_for::<RefcountBt>(self.block_size, self.ag_blocks.into())
    }

    /// Maximum height of a bmbt: the maximum of the inode's extent counter, and the smallest root.
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

/// Number of pointers of the smallest bmbt root: three for a data fork, two for an attribute fork (format document,
/// "Extent list", minimum size of each fork).
const fn smallest_bmap_root(fork: ForkKind) -> u64 {
    match fork {
        ForkKind::Data => 3,
        ForkKind::Attr => 2,
    }
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
    fn tree_height_grows_after_a_full_leaf() {
        let least = u64::from(min_records::<BnoBt>(4096));
        assert_eq!(levels_for::<BnoBt>(4096, 0), 1);
        assert_eq!(levels_for::<BnoBt>(4096, least), 1);
        assert_eq!(levels_for::<BnoBt>(4096, least + 1), 2);
    }

    #[test]
    fn tree_height_is_limited_by_its_blocks() {
        let node = min_keys::<RmapBt>(4096);
        let least = 1 + 2 + 2 * node;
        for (blocks, levels) in [(0, 1), (1, 1), (2, 1), (3, 2), (least - 1, 2), (least, 3), (u32::MAX, 7)] {
            assert_eq!(levels_within::<RmapBt>(4096, blocks), levels, "{blocks}");
        }
    }

    #[test]
    fn tree_heights_follow_from_the_ag_size() {
        let large = shape(4096, 1 << 28 >> 1);
        assert_eq!((large.alloc_levels(), large.refcount_levels()), (4, 4));
        assert_eq!((large.bmap_levels(ForkKind::Data), large.bmap_levels(ForkKind::Attr)), (7, 5));
        let small = shape(65536, 256);
        assert_eq!((small.alloc_levels(), small.inode_levels(), small.rmap_levels()), (1, 1, 1));
    }
}
