//! The inode create item: the range of free inodes with which a new chunk, or part of a sparse chunk, is initialized.

use base::{AgBlock, AgNumber};

use crate::damage::Damage;
use crate::ensure;
use crate::geometry::{Geometry, INODES_PER_CHUNK};
use crate::ondisk::{LeU16, OnDisk, U32};

const NAME: &str = "inode create log item";

crate::ondisk! {
    /// The item's only region. All fields except the head are big-endian.
    pub struct RawInodeCreate("inode create log item", 28) {
        /// `0x123f`.
        kind as "type": LeU16 = Hex,
        /// 1.
        size: LeU16 = Uint,
        /// The AG.
        ag: U32 = Uint,
        /// First block within it.
        agbno: U32 = Uint,
        /// Inodes.
        count: U32 = Uint,
        /// Bytes of an inode.
        isize: U32 = Uint,
        /// Blocks.
        length: U32 = Uint,
        /// Generation of each inode.
        generation as "gen": U32 = Uint,
    }
}

/// A decoded inode create item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeCreate {
    /// The AG.
    pub ag: AgNumber,
    /// First block within it.
    pub block: AgBlock,
    /// Inodes.
    pub count: u32,
    /// Bytes of an inode.
    pub inode_bytes: u32,
    /// Blocks.
    pub blocks: u32,
    /// Generation of each inode.
    pub generation: u32,
}

impl InodeCreate {
    /// Decodes the item's only region.
    pub fn parse(region: &[u8]) -> Result<Self, Damage> {
        let raw = RawInodeCreate::view(region)
            .ok_or_else(|| Damage::short(NAME, RawInodeCreate::SIZE, region.len()))?;
        Ok(Self {
            ag: AgNumber(raw.ag.get()),
            block: AgBlock(raw.agbno.get()),
            count: raw.count.get(),
            inode_bytes: raw.isize.get(),
            blocks: raw.length.get(),
            generation: raw.generation.get(),
        })
    }

    /// Verifies the range on this volume: whole blocks of at most one chunk, within its AG.
    pub fn verify(&self, geometry: &Geometry) -> Result<(), Damage> {
        ensure!(
            self.inode_bytes == geometry.inode_size,
            NAME,
            "isize",
            geometry.inode_size,
            self.inode_bytes
        );
        let most = INODES_PER_CHUNK.max(1 << geometry.inodes_per_block_log);
        ensure!((1..=most).contains(&self.count), NAME, "count", format_args!("1 to {most}"), self.count);
        ensure!(
            u64::from(self.count) * u64::from(self.inode_bytes)
                == u64::from(self.blocks) << geometry.block_log,
            NAME,
            "length",
            format_args!("the blocks of {} inodes", self.count),
            self.blocks
        );
        let start = geometry.fs_block(self.ag, self.block);
        let fits = geometry.ag_block_is_usable(self.ag, self.block)
            && geometry.fs_block_range_is_valid(start, self.blocks.into());
        ensure!(
            fits,
            NAME,
            "agbno",
            "blocks within the AG",
            format_args!("{:#x} in AG {}", self.block, self.ag)
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_little_endian_and_the_rest_big_endian() {
        let mut bytes = vec![0x3f, 0x12, 1, 0];
        for n in [3u32, 24, 64, 512, 8, 77] {
            bytes.extend(n.to_be_bytes());
        }
        let item = InodeCreate::parse(&bytes).unwrap();
        assert_eq!((item.ag.get(), item.block.get(), item.count), (3, 24, 64));
        assert_eq!((item.inode_bytes, item.blocks, item.generation), (512, 8, 77));
        assert!(InodeCreate::parse(&bytes[..27]).is_err());
    }
}
