//! How many bytes of the log a change of an allocation group can take: upper bounds, from the volume's shape alone.
//!
//! A transaction reserves log space before it begins, and must never log more than that. What it logs are items:
//!
//! | item | bytes, each region with its operation header |
//! |---|---|
//! | a buffer | its format, and at most all its bytes in one region (a gap saves more than a header costs) |
//! | a header of a B+tree block alone (a sibling's pointer) | its format, and 128 bytes |
//! | a cancelled buffer | its format |
//! | inode creation | 28 bytes |
//! | an extent free intent, or its done item | 16 bytes, and 16 for each extent |
//!
//! The first change of a tree of `n` levels touches at each level two blocks (the block, and the sibling that entries
//! shift to or come from, or its new half), the header of a third, and may add a root. Each further change in the same
//! transaction touches two blocks in the leaves and one above: the levels further up changed with the first one, and
//! have room again. No tree changes more blocks than it can have. Levels and blocks are those of the fullest tree that
//! an AG can have, with every block half full.
//!
//! # Invariants
//! The bounds hold for one transaction. A chain of them (a chunk of inodes and then an inode from it; deferred
//! operations) needs the largest of its parts for each link: see [`AgLogCosts::largest`].

use format::btree::{BnoBt, Btree, InoBt, RefcountBt, RmapBt};
use format::geometry::{Geometry, INODES_PER_CHUNK};
use format::ondisk::OnDisk;

/// Bytes in front of every region.
const OPERATION: u32 = 12;
/// A buffer's format, without its bitmap of chunks.
const BUFFER_FORMAT: u32 = 24;
/// Bytes of a buffer that are logged together.
const CHUNK: u32 = 128;
/// An extent free item: its head, and one extent.
const FREE_ITEM_HEAD: u32 = 16;
const FREE_ITEM_EXTENT: u32 = 16;
/// Extents whose reference counts are changed in one transaction.
const COUNTED_EXTENTS: u32 = 2;
/// Records of reference counts that are changed for one of them.
const COUNTS_AT_ONCE: u32 = 8;
/// Extents that are freed in one transaction.
const FREED_EXTENTS: u32 = 4;

/// How large a tree can get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BtreeSize {
    /// Levels; 0 where the volume has no such tree.
    pub levels: u32,
    /// Blocks.
    pub blocks: u64,
}

/// The largest trees of an AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxBtreeSizes {
    /// Free space, by block and by size.
    pub free_space: BtreeSize,
    /// Each of both inode trees.
    pub inodes: BtreeSize,
    /// Reverse mappings.
    pub rmap: BtreeSize,
    /// Reference counts.
    pub refcount: BtreeSize,
}

/// Least records of a leaf and keys of a node: half of what fits.
fn least<T: Btree>(geometry: &Geometry) -> (u64, u64) {
    let least = |size: usize| ((geometry.block_size as usize - T::Header::SIZE) / size / 2).max(2) as u64;
    (least(T::Record::SIZE), least(T::Key::SIZE + T::Pointer::SIZE))
}

/// Blocks of each level of a tree with that many records, leaves first, when every block is half full.
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
    /// Those of a volume.
    pub fn derive(geometry: &Geometry) -> Self {
        let blocks = u64::from(geometry.ag_blocks);
        let rmap = match (geometry.features.rmapbt(), geometry.features.reflink()) {
            (false, _) => BtreeSize::default(),
            (true, false) => bound(least::<RmapBt>(geometry), blocks),
            // A block can have any number of owners, until the tree fills the AG.
            (true, true) => {
                let least = least::<RmapBt>(geometry);
                BtreeSize { blocks, ..bound(least, blocks * least.0) }
            }
        };
        let refcount = match geometry.features.reflink() {
            true => bound(least::<RefcountBt>(geometry), blocks),
            false => BtreeSize::default(),
        };
        // At worst every second block is free.
        let free_space = bound(least::<BnoBt>(geometry), blocks.div_ceil(2));
        let inodes = bound(least::<InoBt>(geometry), most_chunks(geometry, geometry.ag_blocks));
        Self { free_space, inodes, rmap, refcount }
    }
}

/// What changes cost, in bytes of the log.
#[derive(Clone, Copy, Debug)]
pub struct AgLogCosts {
    bounds: MaxBtreeSizes,
    block: u32,
    sector: u32,
    finobt: bool,
    /// Buffers of the inodes of one chunk.
    clusters: u32,
}

impl AgLogCosts {
    /// Those of a volume.
    pub fn derive(geometry: &Geometry) -> Self {
        Self {
            bounds: MaxBtreeSizes::derive(geometry),
            block: geometry.block_size,
            sector: geometry.sector_size,
            finobt: geometry.features.finobt(),
            // At worst every block is a buffer of its own.
            clusters: geometry.blocks_per_chunk(),
        }
    }

    /// The sizes of trees that these costs assume.
    pub fn bounds(&self) -> MaxBtreeSizes {
        self.bounds
    }

    /// A buffer of `bytes` bytes, all of it changed.
    pub fn buffer(bytes: u32) -> u32 {
        Self::cancelled(bytes) + OPERATION + bytes
    }

    /// A buffer of `bytes` bytes of which the first few changed.
    pub fn header(bytes: u32) -> u32 {
        Self::cancelled(bytes) + OPERATION + CHUNK
    }

    /// A buffer of `bytes` bytes that is cancelled: its format alone.
    pub fn cancelled(bytes: u32) -> u32 {
        OPERATION + BUFFER_FORMAT + bytes.div_ceil(CHUNK).div_ceil(32) * 4
    }

    /// That many insertions and deletions of records in one tree, and updates that move nothing.
    pub fn tree(&self, tree: BtreeSize, changes: u32, updates: u32) -> u32 {
        let BtreeSize { levels, blocks } = tree;
        let first = if changes > 0 { 2 * levels + 1 } else { 0 };
        let further = changes.saturating_sub(1) * 3 + updates * levels;
        let whole = u64::from(first + further).min(blocks) as u32; // the lesser was 32 bits wide
        let beside = changes * levels * (Self::header(self.block) + Self::cancelled(self.block));
        if levels == 0 { 0 } else { whole * Self::buffer(self.block) + beside }
    }

    /// Free space trees and reverse mappings, when `extents` extents of one AG become smaller, or go, or come.
    ///
    /// By block, an extent changes one record, and may add or remove one; by size, it moves one and may add or remove
    /// another; so do blocks for the AGFL, and its reverse mappings.
    pub fn space(&self, extents: u32) -> u32 {
        let MaxBtreeSizes { free_space, rmap, .. } = self.bounds;
        let headers = 2 * Self::buffer(self.sector);
        let (extents, list) = (2 * extents, 2);
        headers
            + self.tree(free_space, extents + list, 1)
            + self.tree(free_space, 2 * extents + list, 0)
            + self.tree(rmap, extents + list, 1)
    }

    /// Intents and done items for that many extents, and what an intent says of the next.
    fn intents(extents: u32) -> u32 {
        2 * (OPERATION + FREE_ITEM_HEAD + extents * FREE_ITEM_EXTENT)
    }

    /// Allocating one extent in one AG.
    pub fn extent_alloc(&self) -> u32 {
        self.space(1)
    }

    /// Freeing as many extents as one transaction does, each in an AG of its own.
    pub fn extent_free(&self) -> u32 {
        FREED_EXTENTS * self.space(1) + Self::intents(FREED_EXTENTS)
    }

    /// Changing the reference counts of as many extents as one transaction does, with the blocks that the tree takes:
    /// of each at most `COUNTS_AT_ONCE` records go, and as many come, and two more.
    pub fn owners(&self) -> u32 {
        let MaxBtreeSizes { refcount, .. } = self.bounds;
        let changes = 2 * (COUNTS_AT_ONCE + 1);
        COUNTED_EXTENTS
            * (self.tree(refcount, changes, COUNTS_AT_ONCE) + self.space(1) + refcount.levels * self.block)
            + Self::intents(COUNTED_EXTENTS + 2 * COUNTS_AT_ONCE)
    }

    /// Allocating a chunk of inodes: its blocks, the inode creation item, a record in both inode trees with blocks from
    /// the AG for each of their levels, and the AGI.
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

    /// Taking an inode from a chunk that has one: the AGI, its record in the inode tree, and in the free inode tree
    /// its record, too, or that it goes.
    pub fn inode_take(&self) -> u32 {
        let MaxBtreeSizes { inodes, .. } = self.bounds;
        let free_tree = if self.finobt { self.tree(inodes, 1, 0) } else { 0 };
        Self::buffer(self.sector) + self.tree(inodes, 0, 1) + free_tree + Self::intents(inodes.levels)
    }

    /// Giving an inode back, and its chunk if that was the last: the AGI, both records, the buffers of the inodes,
    /// blocks for the free inode tree, and the intents to free the blocks of the chunk and of the trees.
    pub fn inode_free(&self) -> u32 {
        let MaxBtreeSizes { inodes, .. } = self.bounds;
        let free_tree = if self.finobt { self.tree(inodes, 1, 0) + self.space(inodes.levels) } else { 0 };
        Self::buffer(self.sector)
            + self.tree(inodes, 1, 0)
            + free_tree
            + self.clusters * Self::cancelled(self.block)
            + Self::intents(self.clusters + 2 * inodes.levels)
    }

    /// The largest transaction of the chain that creates an inode, or removes one: chunk, inode, or a deferred free.
    pub fn largest(&self) -> u32 {
        self.inode_chunk_alloc().max(self.inode_take()).max(self.inode_free()).max(self.extent_free())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::testing;

    #[test]
    fn a_tree_of_half_full_blocks_has_these_blocks() {
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
        assert!(after.bounds().rmap.levels <= format::btree::MAX_LEVELS);
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
