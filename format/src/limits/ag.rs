//! Space in an AG: the blocks used from the start, and the limits of its size.
//!
//! A new AG begins with four header sectors, followed by one block for the root of each btree in this order: bnobt,
//! cntbt, inobt, finobt, rmapbt, refcountbt.

use super::VolumeShape;

/// Minimum AG size in bytes.
pub const MIN_BYTES: u64 = 16 << 20;
/// Exclusive maximum of the AG size in bytes.
pub const MAX_BYTES: u64 = 1 << 40;

/// The blocks of the btree roots of a new AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgRoots {
    /// Root of the bnobt; also the number of header blocks.
    pub bno: u32,
    /// Root of the cntbt.
    pub cnt: u32,
    /// Root of the inobt.
    pub inode: u32,
    /// Root of the finobt.
    pub free_inode: Option<u32>,
    /// Root of the rmapbt.
    pub rmap: Option<u32>,
    /// Root of the refcountbt.
    pub refcount: Option<u32>,
    /// The first block after the roots.
    pub end: u32,
}

impl VolumeShape {
    /// The btree roots of a new AG.
    pub fn roots(&self) -> AgRoots {
        let bno = (4 * self.sector_size).div_ceil(self.block_size.max(1));
        let mut end = bno + 3;
        let mut next = |wanted: bool| {
            wanted.then(|| {
                end += 1;
                end - 1
            })
        };
        let free_inode = next(self.features.finobt());
        let rmap = next(self.features.rmapbt());
        let refcount = next(self.features.reflink());
        AgRoots { bno, cnt: bno + 1, inode: bno + 2, free_inode, rmap, refcount, end }
    }

    /// Minimum number of AGFL blocks for free space btrees and an rmapbt of these heights: for each tree the blocks of
    /// its longest split, twice, limited by the maximum height of the tree.
    pub fn agfl_minimum(&self, alloc_levels: u32, rmap_levels: u32) -> u32 {
        let splits = |levels: u32, most: u32| 2 * (levels + 1).min(most).max(1) - 2;
        let rmap = if self.features.rmapbt() { splits(rmap_levels, self.rmap_levels_reserved()) } else { 0 };
        2 * splits(alloc_levels, self.alloc_levels()) + rmap
    }

    /// Number of levels reserved for the rmapbt: with shared blocks it may have more records than the AG has blocks.
    pub fn rmap_levels_reserved(&self) -> u32 {
        if self.features.reflink() { crate::btree::MAX_LEVELS } else { self.rmap_levels() }
    }

    /// Maximum length of an extent in an AG: its blocks without headers, roots and AGFL reserve.
    pub fn ag_usable_blocks(&self) -> u32 {
        self.ag_blocks.saturating_sub(self.roots().end + AGFL_RESERVE)
    }
}

/// AGFL blocks of an AG that are reserved when its largest extent is computed.
const AGFL_RESERVE: u32 = 4;

/// Minimum number of blocks of an AG.
pub fn min_blocks(block_size: u32) -> u32 {
    (MIN_BYTES / u64::from(block_size.max(1))) as u32
}

/// Maximum number of blocks of an AG: less than 1 TiB.
pub fn max_blocks(block_size: u32) -> u32 {
    ((MAX_BYTES - 1) / u64::from(block_size.max(1))) as u32
}
