//! Extents of a fork: 128 bits that map a range of logical blocks to a range of disk blocks.

use base::{FileBlock, FsBlock};

use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::U64;

/// Maximum length of an extent: 21 bits of blocks.
pub const MAX_EXTENT_BLOCKS: u64 = (1 << 21) - 1;
/// Highest logical block plus one: 54 bits.
pub const MAX_FILE_BLOCKS: u64 = 1 << 54;

crate::ondisk! {
    /// An extent as stored in an inode or in a leaf of a bmbt.
    pub struct RawExtent("extent", 16) {
        /// Unwritten flag, 54 bits of logical block, the upper 9 bits of the disk block.
        l0: U64 = Hex,
        /// The lower 43 bits of the disk block, 21 bits of length.
        l1: U64 = Hex,
    }
}

/// A decoded extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First logical block.
    pub offset: FileBlock,
    /// First disk block.
    pub start: FsBlock,
    /// Number of blocks: 1 to 2^21 - 1.
    pub count: u64,
    /// Allocated but not written: reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The first logical block after the extent. Cannot overflow: 54 bits plus 21 bits.
    pub fn end(&self) -> FileBlock {
        FileBlock(self.offset.get() + self.count)
    }

    /// Decodes an extent without verifying it.
    pub fn decode(raw: &RawExtent) -> Self {
        let (l0, l1) = (raw.l0.get(), raw.l1.get());
        Self {
            unwritten: l0 >> 63 != 0,
            offset: FileBlock((l0 >> 9) & ((1 << 54) - 1)),
            start: FsBlock((l0 & 0x1ff) << 43 | l1 >> 21),
            count: l1 & MAX_EXTENT_BLOCKS,
        }
    }

    /// Encodes the extent.
    pub fn encode(&self) -> RawExtent {
        let (offset, start) = (self.offset.get(), self.start.get());
        RawExtent {
            l0: U64::new(u64::from(self.unwritten) << 63 | offset << 9 | start >> 43),
            l1: U64::new(start << 21 | self.count),
        }
    }

    /// Verifies the extent: at least one block, within one AG, after its header, below the highest file block.
    pub fn verify(&self, geometry: &Geometry) -> Result<(), Damage> {
        const NAME: &str = "extent";
        ensure!(self.count > 0, NAME, "blockcount", "at least 1", self.count);
        ensure!(self.end().get() <= MAX_FILE_BLOCKS, NAME, "startoff", "an end below 2^54", self.offset);
        let usable =
            geometry.split_fs_block(self.start).is_some_and(|(ag, b)| geometry.ag_block_is_usable(ag, b));
        ensure!(
            usable && geometry.fs_block_range_is_valid(self.start, self.count),
            NAME,
            "startblock",
            "blocks within one AG, after its header",
            format_args!("{:#x} for {} blocks", self.start, self.count)
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_round_trip_at_every_field_limit() {
        for offset in [0, 1, MAX_FILE_BLOCKS - 1] {
            for start in [0, 1, (1 << 43) - 1, 1 << 43, (1 << 52) - 1] {
                for count in [1, MAX_EXTENT_BLOCKS] {
                    for unwritten in [false, true] {
                        let extent =
                            Extent { offset: FileBlock(offset), start: FsBlock(start), count, unwritten };
                        assert_eq!(Extent::decode(&extent.encode()), extent);
                    }
                }
            }
        }
    }
}
