//! Room inside an AG: which blocks are taken from the start, and how large an AG may be.
//!
//! A fresh AG begins with its four header sectors, then one block for the root of each tree in this order: free space
//! by block, by size, inodes, free inodes, reverse mappings, reference counts.

use super::VolumeShape;

/// Smallest AG in bytes.
pub const MIN_BYTES: u64 = 16 << 20;
/// Largest AG in bytes; its blocks are what fits below.
pub const MAX_BYTES: u64 = 1 << 40;

/// The first blocks of a fresh AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgRoots {
    /// Blocks of the header sectors; also the root of the free space tree by block.
    pub bno: u32,
    /// Root of the free space tree by size.
    pub cnt: u32,
    /// Root of the inode tree.
    pub inode: u32,
    /// Root of the free inode tree.
    pub free_inode: Option<u32>,
    /// Root of the reverse-mapping tree.
    pub rmap: Option<u32>,
    /// Root of the reference-count tree.
    pub refcount: Option<u32>,
    /// The first block behind all of them.
    pub end: u32,
}

impl VolumeShape {
    /// Where the roots of a fresh AG lie.
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

    /// Blocks that the AGFL must hold for trees of these heights (both free space trees, and the reverse-mapping tree):
    /// for each tree, as many as its longest split takes twice, as far as the tree can grow at all.
    pub fn agfl_minimum(&self, alloc_levels: u32, rmap_levels: u32) -> u32 {
        let splits = |levels: u32, most: u32| 2 * (levels + 1).min(most).max(1) - 2;
        let rmap = if self.features.rmapbt() { splits(rmap_levels, self.rmap_levels_reserved()) } else { 0 };
        2 * splits(alloc_levels, self.alloc_levels()) + rmap
    }

    /// Levels that are kept in reserve for the reverse-mapping tree: with shared blocks it may outgrow the AG's blocks.
    pub fn rmap_levels_reserved(&self) -> u32 {
        if self.features.reflink() { crate::btree::MAX_LEVELS } else { self.rmap_levels() }
    }

    /// Most blocks of an AG that can ever be in one extent: what its headers, roots and the reserve of its AGFL leave.
    pub fn ag_usable_blocks(&self) -> u32 {
        self.ag_blocks.saturating_sub(self.roots().end + AGFL_RESERVE)
    }
}

/// Blocks that are kept for the AGFL of every AG when its largest extent is told.
const AGFL_RESERVE: u32 = 4;

/// Fewest blocks of an AG.
pub fn min_blocks(block_size: u32) -> u32 {
    (MIN_BYTES / u64::from(block_size.max(1))) as u32
}

/// Most blocks of an AG: less than 1 TiB.
pub fn max_blocks(block_size: u32) -> u32 {
    ((MAX_BYTES - 1) / u64::from(block_size.max(1))) as u32
}
