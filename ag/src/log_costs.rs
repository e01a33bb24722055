//! Upper bounds of the log space that a change of an AG takes, from the volume's geometry alone.
//!
//! A transaction reserves log space before it begins and must never log more than that. It logs items:
//!
//! | item | bytes, each region with its operation header |
//! |---|---|
//! | a buffer | its format, and at most all its bytes in one region (a gap saves more than a header costs) |
//! | the header of a btree block (a sibling pointer) | its format, and 128 bytes |
//! | a cancelled buffer | its format |
//! | inode creation | 28 bytes |
//! | an extent-free intent, or its done item | 16 bytes, and 16 for each extent |
//!
//! The first change of a tree of `n` levels touches at each level two blocks (the block, and its new half or the
//! sibling that exchanges entries with it) and the header of a third, and may add a root. Each further change in the
//! same transaction touches two leaves and one node: higher levels changed with the first one and have free slots
//! again. No tree changes more blocks than it can have. Levels and blocks are those of the largest tree that an AG can
//! have, with every block half full.
//!
//! # Invariants
//! The bounds hold for one transaction. A chain of transactions (a chunk of inodes, then an inode of it; deferred
//! operations) needs the largest bound of its parts for each: see [`AgLogCosts::largest`].

use format::btree::{BnoBt, Btree, InoBt, RefcountBt, RmapBt};
use format::geometry::{Geometry, INODES_PER_CHUNK};
use format::ondisk::OnDisk;

/// Size of an operation header, which precedes every region.
const OPERATION: u32 = 12;
/// Size of a buffer's format without its bitmap of chunks.
const BUFFER_FORMAT: u32 = 24;
/// Granularity in which buffers are logged, in bytes.
const CHUNK: u32 = 128;
/// Sizes of an extent-free item: its head, and one extent.
const FREE_ITEM_HEAD: u32 = 16;
const FREE_ITEM_EXTENT: u32 = 16;
/// Extents whose reference counts change in one transaction.
const COUNTED_EXTENTS: u32 = 2;
/// Refcount records that change for one of these extents.
const COUNTS_AT_ONCE: u32 = 8;
/// Extents that are freed in one transaction.
const FREED_EXTENTS: u32 = 4;

/// Maximum size of a btree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BtreeSize {
    /// Levels; 0 if the volume has no such tree.
    pub levels: u32,
    /// Blocks.
    pub blocks: u64,
}

/// Maximum sizes of an AG's btrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxBtreeSizes {
    /// The bnobt, and the cntbt.
    pub free_space: BtreeSize,
    /// The inobt, and the finobt.
    pub inodes: BtreeSize,
    /// The rmapbt.
    pub rmap: BtreeSize,
    /// The refcountbt.
    pub refcount: BtreeSize,
}

/// Minimum number of records of a leaf and keys of a node: half of the maximum.
fn least<T: Btree>(geometry: &Geometry) -> (u64, u64) {
    let least = |size: usize| ((geometry.block_size as usize - T::Header::SIZE) / size / 2).max(2) as u64;
    (least(T::Record::SIZE), least(T::Key::SIZE + T::Pointer::SIZE))
}

/// Blocks of each level of a tree with `records` records, leaves first, if every block is half full.
fn level_blocks((leaf, node): (u64, u64), records: u64) -> impl Iterator<Item = u64> {
    let mut next = Some(records.div_ceil(leaf).max(1));
    std::iter::from_fn(move || {
        let blocks = next?;
        next = (blocks > 1).then(|| blocks.div_ceil(node));
        Some(blocks)
    })
}

fn bound(least: (u64, u64), records: u64) -> BtreeSize {
    let (levels, blocks) =
        level_blocks(least, records).fold((0, 0), |(levels, sum), blocks| (levels + 1, sum + blocks));
    BtreeSize { levels, blocks }
}

fn most_chunks(geometry: &Geometry, blocks: u32) -> u64 {
    (u64::from(blocks) << geometry.inodes_per_block_log) / u64::from(INODES_PER_CHUNK)
}

impl MaxBtreeSizes {
    /// Derived from the volume's geometry.
    pub fn derive(geometry: &Geometry) -> Self {
        let blocks = u64::from(geometry.ag_blocks);
        let rmap = match (geometry.features.rmapbt(), geometry.features.reflink()) {
            (false, _) => BtreeSize::default(),
            (true, false) => bound(least::<RmapBt>(geometry), blocks),
            // A block can have any number of owners, up to a tree that fills the AG.
            (true, true) => {
                let least = least::<RmapBt>(geometry);
                BtreeSize { blocks, ..bound(least, blocks * least.0) }
            }
        };
        let refcount = match geometry.features.reflink() {
            true => bound(least::<RefcountBt>(geometry), blocks),
            false => BtreeSize::default(),
        };
        // In the worst case every second block is free.
        let free_space = bound(least::<BnoBt>(geometry), blocks.div_ceil(2));
        let inodes = bound(least::<InoBt>(geometry), most_chunks(geometry, geometry.ag_blocks));
        Self { free_space, inodes, rmap, refcount }
    }
}

/// Log space of changes to an AG, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct AgLogCosts {
    bounds: MaxBtreeSizes,
    block: u32,
    sector: u32,
    finobt: bool,
    /// Buffers of one inode chunk.
    clusters: u32,
}

impl AgLogCosts {
    /// Derived from the volume's geometry.
    pub fn derive(geometry: &Geometry) -> Self {
        Self {
            bounds: MaxBtreeSizes::derive(geometry),
            block: geometry.block_size,
            sector: geometry.sector_size,
            finobt: geometry.features.finobt(),
            // In the worst case every block is a buffer of its own.
            clusters: geometry.blocks_per_chunk(),
        }
    }

    /// A buffer of `bytes` bytes that changed as a whole.
    pub fn buffer(bytes: u32) -> u32 {
        Self::cancelled(bytes) + OPERATION + bytes
    }

    /// A buffer of `bytes` bytes whose header changed.
    pub fn header(bytes: u32) -> u32 {
        Self::cancelled(bytes) + OPERATION + CHUNK
    }

    /// A cancelled buffer of `bytes` bytes: its format alone.
    pub fn cancelled(bytes: u32) -> u32 {
        OPERATION + BUFFER_FORMAT + bytes.div_ceil(CHUNK).div_ceil(32) * 4
    }

    /// `changes` insertions and deletions in one tree, and `updates` updates in place.
    pub fn tree(&self, tree: BtreeSize, changes: u32, updates: u32) -> u32 {
        let BtreeSize { levels, blocks } = tree;
        let first = if changes > 0 { 2 * levels + 1 } else { 0 };
        let further = changes.saturating_sub(1) * 3 + updates * levels;
        let whole = u64::from(first + further).min(blocks) as u32; // the lesser was 32 bits wide
        let beside = changes * levels * (Self::header(self.block) + Self::cancelled(self.block));
        if levels == 0 { 0 } else { whole * Self::buffer(self.block) + beside }
    }

    /// Changes of `extents` free extents of one AG: the free-space trees and reverse mappings.
    ///
    /// In the bnobt an extent changes one record, and may add or remove another. In the cntbt it moves one record, and
    /// may add or remove another. So do blocks for the AGFL and their reverse mappings.
    pub fn space(&self, extents: u32) -> u32 {
        let MaxBtreeSizes { free_space, rmap, .. } = self.bounds;
        let headers = 2 * Self::buffer(self.sector);
        let (extents, list) = (2 * extents, 2);
        headers
            + self.tree(free_space, extents + list, 1)
            + self.tree(free_space, 2 * extents + list, 0)
            + self.tree(rmap, extents + list, 1)
    }

    /// Allocates `runs` extents of one AG, each shared out to several files. The mappings of a run are adjacent in the
    /// rmapbt: they change its place there, up to a further leaf on both sides, and one record elsewhere at each end.
    pub fn shared_out(&self, runs: u32) -> u32 {
        self.space(runs) + self.tree(self.bounds.rmap, 4 * runs, runs)
    }

    /// Intents and done items for `extents` extents, with those of the next intent.
    fn intents(extents: u32) -> u32 {
        2 * (OPERATION + FREE_ITEM_HEAD + extents * FREE_ITEM_EXTENT)
    }

    /// Allocates one extent in one AG.
    pub fn extent_alloc(&self) -> u32 {
        self.space(1)
    }

    /// Frees as many extents as one transaction does, each in another AG.
    pub fn extent_free(&self) -> u32 {
        FREED_EXTENTS * self.space(1) + Self::intents(FREED_EXTENTS)
    }

    /// Changes the reference counts of as many extents as one transaction does, with new blocks for the refcountbt. For
    /// each extent at most `COUNTS_AT_ONCE` records are removed, and as many and two more added.
    pub fn owners(&self) -> u32 {
        let MaxBtreeSizes { refcount, .. } = self.bounds;
        let changes = 2 * (COUNTS_AT_ONCE + 1);
        COUNTED_EXTENTS
            * (self.tree(refcount, changes, COUNTS_AT_ONCE) + self.space(1) + refcount.levels * self.block)
            + Self::intents(COUNTED_EXTENTS + 2 * COUNTS_AT_ONCE)
    }

    /// Allocates an inode chunk: its blocks, the inode creation item, a record in both inode trees with a new block for
    /// each of their levels, and the AGI.
    pub fn inode_chunk_alloc(&self) -> u32 {
        let trees = if self.finobt { 2 } else { 1 };
        let create = OPERATION + format::log::icreate::RawInodeCreate::SIZE as u32;
        let levels = self.bounds.inodes.levels;
        Self::buffer(self.sector)
            + self.space(1 + trees * levels)
            + create
            + trees * self.tree(self.bounds.inodes, 1, 0)
            + Self::intents(FREED_EXTENTS)
    }

    /// Allocates an inode of an existing chunk: the AGI, the inobt record, and the finobt record, which may be removed.
    pub fn inode_take(&self) -> u32 {
        let MaxBtreeSizes { inodes, .. } = self.bounds;
        let free_tree = if self.finobt { self.tree(inodes, 1, 0) } else { 0 };
        Self::buffer(self.sector) + self.tree(inodes, 0, 1) + free_tree + Self::intents(inodes.levels)
    }

    /// Frees an inode, and its chunk if it was the last: the AGI, both records, the buffers of the inodes, blocks for
    /// the finobt, and the intents to free the blocks of the chunk and of the trees.
    pub fn inode_free(&self) -> u32 {
        let MaxBtreeSizes { inodes, .. } = self.bounds;
        let free_tree = if self.finobt { self.tree(inodes, 1, 0) + self.space(inodes.levels) } else { 0 };
        Self::buffer(self.sector)
            + self.tree(inodes, 1, 0)
            + free_tree
            + self.clusters * Self::cancelled(self.block)
            + Self::intents(self.clusters + 2 * inodes.levels)
    }

    /// The largest transaction of the chain that creates or removes an inode: chunk, inode, or a deferred free.
    pub fn largest(&self) -> u32 {
        self.inode_chunk_alloc().max(self.inode_take()).max(self.inode_free()).max(self.extent_free())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::testing;

    #[test]
    fn blocks_of_a_half_full_tree() {
        assert_eq!(level_blocks((10, 4), 0).collect::<Vec<_>>(), [1]);
        assert_eq!(level_blocks((10, 4), 10).collect::<Vec<_>>(), [1]);
        assert_eq!(level_blocks((10, 4), 11).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(level_blocks((10, 4), 1000).collect::<Vec<_>>(), [100, 25, 7, 2, 1]);
        assert_eq!(bound((10, 4), 1000), BtreeSize { levels: 5, blocks: 135 });
    }

    #[test]
    fn sizes_and_costs_grow_with_the_ag_and_the_features() {
        let small = testing::geometry();
        let bounds = MaxBtreeSizes::derive(&small);
        let levels =
            [bounds.free_space, bounds.inodes, bounds.rmap, bounds.refcount].map(|bound| bound.levels);
        assert_eq!(levels, [2, 2, 0, 0]);
        let mut large = testing::geometry();
        (large.ag_blocks, large.size, large.ag_block_log) = (1 << 28, (1 << 29).into(), 28);
        large.features.ro_compat |=
            format::features::ro_compat::RMAPBT | format::features::ro_compat::REFLINK;
        let (before, after) = (AgLogCosts::derive(&small), AgLogCosts::derive(&large));
        assert!(before.inode_take() < after.inode_take());
        assert!(before.largest() < after.largest());
        assert!(after.bounds.rmap.levels <= format::btree::MAX_LEVELS);
        let mut plain = testing::geometry();
        plain.features.ro_compat = 0;
        assert!(AgLogCosts::derive(&plain).inode_take() < before.inode_take());
    }

    #[test]
    fn small_volumes_need_small_logs() {
        // The smallest log has 512 blocks, of which half can be reserved at a time.
        assert!(AgLogCosts::derive(&testing::geometry()).largest() < 512 * 4096 / 4);
    }
}
