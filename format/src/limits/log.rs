//! Minimum and maximum size of a log.
//!
//! The kernel refuses to mount a volume whose log cannot hold three times its largest transaction, including the rolls
//! of its reservation. The maximum size of each transaction is therefore part of the format. It is computed here as the
//! kernel did when such volumes were introduced, independent of what an engine reserves today. All results were
//! compared with the minimum that `mkfs.xfs` 6.13 reports for about a thousand geometries (`proof/interop/tests/mkfs`).
//!
//! Sizes are in bytes unless a name says otherwise.

use super::VolumeShape;
use crate::inode::ForkKind;

/// Maximum number of blocks of a log.
pub const MAX_BLOCKS: u64 = 1 << 20;
/// Maximum size of a log in bytes: 10 MiB less than 2 GiB.
pub const MAX_BYTES: u64 = (2 << 30) - (10 << 20);
/// Log size in bytes on a volume large enough for it, even if the minimum is smaller.
pub const REALISTIC_BYTES: u64 = 64 << 20;

/// Basic block: the unit of the log, 512 bytes.
const BASIC_BLOCK: u64 = 512;
/// Overhead of a logged buffer: an operation header and the item's format, rounded up to 128.
const BUFFER_OVERHEAD: u64 = 128;
/// Operation header.
const OPERATION: u64 = 12;
/// Transaction header.
const TRANSACTION: u64 = 16;
/// Maximum size of a log buffer.
const LOG_BUFFER: u64 = 256 << 10;
const LOG_BUFFER_HEADERS: u64 = 4096;
/// Overhead of a logged inode: the item's format (56) and four operation headers.
const INODE_OVERHEAD: u64 = 4 * OPERATION + 56;
/// Quota changes of a transaction: six items of a format (24) and a record (104).
const QUOTA: u64 = 6 * (24 + 104);
/// Maximum height of a dabtree; also the number of additional blocks that inserting a directory entry may change.
const HASH_LEVELS: u64 = 5;
const DIRECTORY_EXTRA: u64 = 2;
/// Maximum length of a symlink target.
const SYMLINK: u64 = 1024;
/// Maximum length of a name, rounded up to 4; size of a parent pointer's value; size of an attribute intent's format.
const NAME: u64 = 256;
const PARENT_VALUE: u64 = 12;
const ATTR_INTENT: u64 = 40;
/// The log holds this multiple of the largest transaction.
const FACTOR: u64 = 3;
/// Height of the rmapbt that is assumed for every volume with reflink.
const RMAP_LEVELS_ASSUMED: u64 = 9;

/// The size of a transaction, and its number of rolls in one reservation.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    bytes: u64,
    rolls: u64,
}

impl VolumeShape {
    /// Minimum number of blocks of a log, which the kernel checks at mount.
    pub fn min_log_blocks(&self) -> u64 {
        let costs = Costs::of(self);
        let largest = costs.largest();
        let space = (costs.ticket(largest.bytes) * largest.rolls).div_ceil(BASIC_BLOCK);
        let stripe = u64::from(self.log_stripe_unit) / BASIC_BLOCK;
        let least = if stripe > 0 {
            space.next_multiple_of(stripe) + 2 * stripe
        } else {
            // Probably meant as two file system blocks; the kernel has always counted 512-byte blocks.
            space + 2 * BASIC_BLOCK
        };
        (FACTOR * least * BASIC_BLOCK).div_ceil(u64::from(self.block_size.max(1)))
    }

    /// Maximum number of blocks of a log in this format.
    pub fn max_log_blocks(&self) -> u64 {
        MAX_BLOCKS.min(MAX_BYTES / u64::from(self.block_size.max(1)))
    }
}

/// The sizes of the parts of a transaction for a geometry.
struct Costs<'a> {
    shape: &'a VolumeShape,
    block: u64,
    sector: u64,
    alloc_levels: u64,
    rmap_levels: u64,
    refcount_levels: u64,
    data_levels: u64,
    attr_levels: u64,
    /// Volumes with parent pointers are newer than the overestimates, which do not apply to them.
    modern: bool,
}

impl<'a> Costs<'a> {
    fn of(shape: &'a VolumeShape) -> Self {
        let features = shape.features;
        let modern = features.parent();
        let rmap_levels = match (features.rmapbt(), features.reflink() && !modern) {
            (false, _) => 0,
            (true, true) => RMAP_LEVELS_ASSUMED,
            (true, false) => shape.rmap_levels().into(),
        };
        Self {
            shape,
            block: shape.block_size.into(),
            sector: shape.sector_size.into(),
            alloc_levels: shape.alloc_levels().into(),
            rmap_levels,
            refcount_levels: shape.refcount_levels().into(),
            data_levels: shape.bmap_levels(ForkKind::Data).into(),
            attr_levels: shape.bmap_levels(ForkKind::Attr).into(),
            modern,
        }
    }

    fn sectors(&self, count: u64) -> u64 {
        count * (self.sector + BUFFER_OVERHEAD)
    }

    fn blocks(&self, count: u64) -> u64 {
        count * (self.block + BUFFER_OVERHEAD)
    }

    /// Inode cores with both forks' roots, each counted with the overhead of a block.
    fn inodes(&self, count: u64) -> u64 {
        count * (INODE_OVERHEAD + u64::from(self.shape.inode_size) + 2 * 72)
    }

    /// Btree blocks that allocating or freeing extents may change, if each tree splits from leaf to root.
    fn space_blocks(&self, extents: u64) -> u64 {
        let rmap = if self.rmap_levels > 0 { 2 * self.rmap_levels - 1 } else { 0 };
        extents * (2 * (2 * self.alloc_levels - 1) + rmap)
    }

    /// Blocks of the refcountbt, from the time when its updates were part of the transaction itself.
    fn refcount(&self, extents: u64) -> u64 {
        if !self.shape.features.reflink() {
            return 0;
        }
        self.blocks(extents * (2 * self.refcount_levels - 1))
    }

    /// Blocks that inserting or removing one directory entry may change, including bmbt blocks.
    fn directory_blocks(&self) -> u64 {
        let per_block = u64::from(self.shape.dir_block_size) / self.block.max(1);
        (HASH_LEVELS + DIRECTORY_EXTRA) * (per_block + self.data_levels - 1) + 1
    }

    fn parent(&self, bytes: u64) -> u64 {
        if self.modern { bytes } else { 0 }
    }

    fn write(&self) -> u64 {
        let space = self.blocks(self.space_blocks(2)) + self.refcount(2);
        let map = self.inodes(1) + self.blocks(self.data_levels) + self.sectors(3) + space;
        QUOTA + map.max(self.sectors(5) + space)
    }

    fn truncate(&self) -> u64 {
        let map = self.inodes(1) + self.blocks(self.data_levels + 1);
        QUOTA + map.max(self.sectors(9) + self.blocks(self.space_blocks(4)) + self.refcount(4))
    }

    /// Freeing four extents. With parent pointers the changes of these are the minimum (inferred from the results,
    /// which do not depend on the inode size or the finobt).
    fn free(&self) -> u64 {
        QUOTA + self.sectors(9) + self.blocks(self.space_blocks(4))
    }

    fn rename(&self) -> u64 {
        let entries = self.inodes(5) + self.blocks(2 * self.directory_blocks());
        let space = self.sectors(7) + self.blocks(self.space_blocks(3));
        // One parent pointer replaced, one created, one removed.
        let parents = 3 * ATTR_INTENT + 4 * (NAME + PARENT_VALUE);
        QUOTA + self.parent(parents) + entries.max(space)
    }

    fn symlink(&self) -> u64 {
        let space = self.blocks(self.space_blocks(1));
        let inode_tree = self.blocks(self.shape.inode_levels().into()) + space;
        let free_inode_tree = if self.shape.features.finobt() { inode_tree } else { 0 };
        let allocate = self.sectors(2) + self.sector + space + inode_tree + free_inode_tree;
        let enter = self.inodes(2)
            + self.sectors(1)
            + self.block
            + self.blocks(self.directory_blocks())
            + free_inode_tree;
        // Between 13 and 54 bytes more than the three regions of the intent: their headers.
        let parents = ATTR_INTENT + NAME + PARENT_VALUE + 3 * OPERATION;
        QUOTA + self.parent(parents) + allocate.max(enter) + SYMLINK + BUFFER_OVERHEAD
    }

    /// Setting the longest attribute that fits in a leaf, with all blocks on the path split.
    fn attribute(&self) -> u64 {
        let set = QUOTA + self.inodes(1) + self.sectors(1) + self.blocks(HASH_LEVELS);
        let per_block = self.sectors(1) + self.blocks(self.attr_levels);
        let value = (self.block * 3 / 4).saturating_sub(NAME);
        let value_blocks = value.div_ceil(self.block.max(1));
        let records = u64::from(super::levels::max_records::<crate::btree::BnoBt>(self.shape.block_size));
        let contiguous = (records - records / 2).max(1);
        // The kernel once used bytes as blocks here.
        let extents = if self.modern { value_blocks } else { value }.div_ceil(contiguous);
        let map = self.attr_levels - 1;
        set + per_block * (HASH_LEVELS * (1 + map) + value_blocks + extents * map)
    }

    /// The transaction with the largest total, including its rolls.
    fn largest(&self) -> Reservation {
        let shared = self.shape.features.reflink() && !self.modern;
        let extents = if shared { 8 } else { 2 };
        let parents = self.parent(3);
        let each = [
            // Includes the allocation of a quota record.
            Reservation { bytes: self.write() + self.blocks(1), rolls: extents },
            Reservation { bytes: self.truncate(), rolls: extents },
            Reservation { bytes: self.rename(), rolls: 2 + parents },
            Reservation { bytes: self.parent(self.free()), rolls: 2 + parents },
            Reservation { bytes: self.symlink(), rolls: 3 + parents },
        ];
        let attribute = Reservation { bytes: self.attribute(), rolls: 3 };
        let largest = each.into_iter().max_by_key(|one| one.bytes * one.rolls).unwrap_or(attribute);
        // Attributes are compared without their rolls, which then apply nevertheless.
        if attribute.bytes > largest.bytes * largest.rolls { attribute } else { largest }
    }

    /// Log space for a transaction of `bytes`: headers of the transaction, its operations and its records, and padding.
    fn ticket(&self, bytes: u64) -> u64 {
        let room = LOG_BUFFER - LOG_BUFFER_HEADERS;
        let mut total = bytes + OPERATION + TRANSACTION + OPERATION;
        let mut records = total.div_ceil(room);
        total += records * OPERATION;
        while total.div_ceil(room) > records {
            total += OPERATION;
            records += 1;
        }
        let padding =
            if self.shape.log_stripe_unit > 1 { self.shape.log_stripe_unit.into() } else { BASIC_BLOCK };
        total + LOG_BUFFER_HEADERS * (records + 1) + 2 * padding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Features, incompat, ro_compat};

    /// Minimum reported by `mkfs.xfs` 6.13 when asked for a smaller log.
    #[test]
    fn minimum_log_sizes_match_mkfs() {
        let rmap = ro_compat::RMAPBT;
        let shared = rmap | ro_compat::REFLINK;
        let (wide, parent) = (incompat::NREXT64, incompat::NREXT64 | incompat::PARENT);
        for (block_size, ag_blocks, ro, incompat, least) in [
            (1024, 16384, shared, wide, 5363),
            (2048, 8192, shared, wide, 3606),
            (2048, 12288, shared, wide, 3810),
            (4096, 4096, shared, wide, 3075),
            (4096, 102_400, shared, wide, 3693),
            (4096, 102_400, rmap, wide, 4049),
            (4096, 102_400, ro_compat::REFLINK, wide, 1986),
            (4096, 102_400, rmap, 0, 915),
            (4096, 102_400, shared, parent, 2001),
            // With reflink the rmapbt gains a level between each of these two pairs.
            (4096, 186_000, shared, incompat::PARENT, 1568),
            (4096, 187_000, shared, incompat::PARENT, 1633),
            (4096, 8_387_000, shared, incompat::PARENT, 1633),
            (4096, 8_388_000, shared, incompat::PARENT, 1757),
            (4096, 60_000_000, shared, incompat::PARENT, 2004),
            (4096, 60_000_000, rmap, incompat::PARENT, 1890),
            (65536, 3200, shared, wide, 2180),
            (65536, 8192, shared, wide, 2570),
        ] {
            let shape = VolumeShape {
                block_size,
                sector_size: 512,
                inode_size: 512,
                dir_block_size: block_size.max(4096),
                ag_blocks,
                log_stripe_unit: 0,
                features: Features { ro_compat: ro | ro_compat::FINOBT, incompat, ..Features::default() },
            };
            assert_eq!(shape.min_log_blocks(), least, "{block_size} {ag_blocks} {ro:#x} {incompat:#x}");
        }
    }

    #[test]
    fn a_log_stripe_unit_makes_the_minimum_larger() {
        let shape = VolumeShape {
            block_size: 4096,
            sector_size: 512,
            inode_size: 512,
            dir_block_size: 4096,
            ag_blocks: 25600,
            log_stripe_unit: 32768,
            features: Features {
                ro_compat: ro_compat::FINOBT | ro_compat::RMAPBT | ro_compat::REFLINK,
                incompat: incompat::NREXT64,
                ..Features::default()
            },
        };
        assert_eq!(shape.min_log_blocks(), 3120);
    }
}
