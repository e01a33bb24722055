//! How small and how large a log may be.
//!
//! The kernel refuses to mount a volume whose log could not hold three times its largest transaction, rolled as often
//! as it reserves for. What a transaction of each kind may write at most is therefore part of the format: it is
//! computed here as the kernel did when such volumes were first made, whatever an engine reserves today. Every number
//! was compared with the minimum that `mkfs.xfs` 6.13 names for some thousand shapes (`proof/interop/tests/mkfs`).
//!
//! All sizes are in bytes unless a name says otherwise.

use super::VolumeShape;
use crate::inode::ForkKind;

/// Most blocks of a log.
pub const MAX_BLOCKS: u64 = 1 << 20;
/// Most bytes of a log: 10 MiB less than 2 GiB.
pub const MAX_BYTES: u64 = (2 << 30) - (10 << 20);
/// Bytes that a log has where the volume affords it, whatever the minimum is.
pub const REALISTIC_BYTES: u64 = 64 << 20;

/// The 512-byte blocks in which a log is counted.
const BASIC_BLOCK: u64 = 512;
/// What a logged buffer takes beside its contents: an operation header and the item's format, rounded up to 128.
const BUFFER_OVERHEAD: u64 = 128;
/// Header of an operation.
const OPERATION: u64 = 12;
/// A transaction's header.
const TRANSACTION: u64 = 16;
/// The largest log buffer, and its record headers.
const LOG_BUFFER: u64 = 256 << 10;
const LOG_BUFFER_HEADERS: u64 = 4096;
/// What a logged inode takes beside itself: its item's format (56) and the headers of four operations.
const INODE_OVERHEAD: u64 = 4 * OPERATION + 56;
/// Changes of quota that go with a transaction: six items of a format (24) and a record (104).
const QUOTA: u64 = 6 * (24 + 104);
/// Levels of a hash tree at most, and how many blocks more an entry's insertion may touch in a directory.
const HASH_LEVELS: u64 = 5;
const DIRECTORY_EXTRA: u64 = 2;
/// Longest target of a symlink.
const SYMLINK: u64 = 1024;
/// Longest name of an attribute or entry, rounded up to 4; a parent pointer's value; an attribute intent's format.
const NAME: u64 = 256;
const PARENT_VALUE: u64 = 12;
const ATTR_INTENT: u64 = 40;
/// The log holds so many of the largest transaction.
const FACTOR: u64 = 3;
/// Height of the reverse-mapping tree that was assumed for every volume with shared blocks.
const RMAP_LEVELS_ASSUMED: u64 = 9;

/// A transaction's bytes, and how often it rolls within one reservation.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    bytes: u64,
    rolls: u64,
}

impl VolumeShape {
    /// Fewest blocks of a log, as the kernel checks them at mount.
    pub fn min_log_blocks(&self) -> u64 {
        let costs = Costs::of(self);
        let largest = costs.largest();
        let space = (costs.ticket(largest.bytes) * largest.rolls).div_ceil(BASIC_BLOCK);
        let stripe = u64::from(self.log_stripe_unit) / BASIC_BLOCK;
        let least = if stripe > 0 {
            space.next_multiple_of(stripe) + 2 * stripe
        } else {
            // Once meant as two blocks; the kernel counts 512 of them twice, and always did.
            space + 2 * BASIC_BLOCK
        };
        (FACTOR * least * BASIC_BLOCK).div_ceil(u64::from(self.block_size.max(1)))
    }

    /// Most blocks of a log by the format's own bounds.
    pub fn max_log_blocks(&self) -> u64 {
        MAX_BLOCKS.min(MAX_BYTES / u64::from(self.block_size.max(1)))
    }
}

/// What the parts of a transaction cost in one shape.
struct Costs<'a> {
    shape: &'a VolumeShape,
    block: u64,
    sector: u64,
    alloc_levels: u64,
    rmap_levels: u64,
    refcount_levels: u64,
    data_levels: u64,
    attr_levels: u64,
    /// Volumes with parent pointers are younger than the overestimates, which therefore do not bind them.
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

    /// Whole inodes, with both forks' roots as blocks' headers.
    fn inodes(&self, count: u64) -> u64 {
        count * (INODE_OVERHEAD + u64::from(self.shape.inode_size) + 2 * 72)
    }

    /// Blocks of the trees that so many extents' allocation or freeing may change, each path split from leaf to root.
    fn space_blocks(&self, extents: u64) -> u64 {
        let rmap = if self.rmap_levels > 0 { 2 * self.rmap_levels - 1 } else { 0 };
        extents * (2 * (2 * self.alloc_levels - 1) + rmap)
    }

    /// The reference-count tree, where updates of it were part of the transaction itself.
    fn refcount(&self, extents: u64) -> u64 {
        if !self.shape.features.reflink() {
            return 0;
        }
        self.blocks(extents * (2 * self.refcount_levels - 1))
    }

    /// Blocks of a directory that one entry's insertion or removal may change, its extent map included.
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

    /// Four extents freed. Where names have parent pointers, their changes take at least that (by the results: what is
    /// named does not depend on the inode's size or the free inode tree).
    fn free(&self) -> u64 {
        QUOTA + self.sectors(9) + self.blocks(self.space_blocks(4))
    }

    fn rename(&self) -> u64 {
        let entries = self.inodes(5) + self.blocks(2 * self.directory_blocks());
        let space = self.sectors(7) + self.blocks(self.space_blocks(3));
        // One pointer replaced, one made, one removed.
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
        // Between 13 and 54 bytes more than the intent's three regions: their headers.
        let parents = ATTR_INTENT + NAME + PARENT_VALUE + 3 * OPERATION;
        QUOTA + self.parent(parents) + allocate.max(enter) + SYMLINK + BUFFER_OVERHEAD
    }

    /// The longest attribute that lies in a leaf, set with everything on the way split.
    fn attribute(&self) -> u64 {
        let set = QUOTA + self.inodes(1) + self.sectors(1) + self.blocks(HASH_LEVELS);
        let per_block = self.sectors(1) + self.blocks(self.attr_levels);
        let value = (self.block * 3 / 4).saturating_sub(NAME);
        let value_blocks = value.div_ceil(self.block.max(1));
        let records = u64::from(super::levels::max_records::<crate::btree::BnoBt>(self.shape.block_size));
        let contiguous = (records - records / 2).max(1);
        // Bytes were once taken for blocks here.
        let extents = if self.modern { value_blocks } else { value }.div_ceil(contiguous);
        let map = self.attr_levels - 1;
        set + per_block * (HASH_LEVELS * (1 + map) + value_blocks + extents * map)
    }

    /// The one that takes most, its rolls included.
    fn largest(&self) -> Reservation {
        let shared = self.shape.features.reflink() && !self.modern;
        let extents = if shared { 8 } else { 2 };
        let parents = self.parent(3);
        let each = [
            // With the record of a quota that must be allocated.
            Reservation { bytes: self.write() + self.blocks(1), rolls: extents },
            Reservation { bytes: self.truncate(), rolls: extents },
            Reservation { bytes: self.rename(), rolls: 2 + parents },
            Reservation { bytes: self.parent(self.free()), rolls: 2 + parents },
            Reservation { bytes: self.symlink(), rolls: 3 + parents },
        ];
        let attribute = Reservation { bytes: self.attribute(), rolls: 3 };
        let largest = each.into_iter().max_by_key(|one| one.bytes * one.rolls).unwrap_or(attribute);
        // Attributes count once against the others, and are then rolled all the same.
        if attribute.bytes > largest.bytes * largest.rolls { attribute } else { largest }
    }

    /// Log space of so many bytes: headers of the transaction, its operations and its records, and what padding may
    /// take.
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

    /// Minima that `mkfs.xfs` 6.13 named when asked for a smaller log.
    #[test]
    fn minima_are_those_of_mkfs() {
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
            // The reverse-mapping tree of shared blocks grows by a level between these two, and these two.
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
