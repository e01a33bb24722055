//! What a shape allows: how many records a block holds, how high a tree can grow, how large a log must be, which blocks
//! of an AG are taken from the start. Pure arithmetic, for whoever lays a volume out, grows it, or reserves space in
//! it.
//!
//! | part | subject |
//! |---|---|
//! | [`VolumeShape`] | the numbers of a volume that decide all of this |
//! | [`levels`] | records of a block, levels of each tree |
//! | [`ag`] | the blocks at the start of an AG, and how large an AG may be |
//! | [`log`] | how small and how large a log may be |
//!
//! # Invariants
//! Every function is total on a [`VolumeShape`] whose sizes are powers of two in the ranges of the format document; on
//! others it returns some number, and neither panics nor loops.

pub mod ag;
pub mod levels;
pub mod log;

use crate::features::Features;
use crate::geometry::Geometry;

/// The numbers of a volume that decide its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeShape {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Bytes of a directory block.
    pub dir_block_size: u32,
    /// Blocks of every AG but the last.
    pub ag_blocks: u32,
    /// Log stripe unit in bytes; 0 for none.
    pub log_stripe_unit: u32,
    /// Feature bits.
    pub features: Features,
}

impl VolumeShape {
    /// The shape of an existing volume.
    pub fn of(geometry: &Geometry) -> Self {
        Self {
            block_size: geometry.block_size,
            sector_size: geometry.sector_size,
            inode_size: geometry.inode_size,
            dir_block_size: geometry.dir_block_size,
            ag_blocks: geometry.ag_blocks,
            log_stripe_unit: geometry.log_stripe_unit,
            features: geometry.features,
        }
    }

    /// log2 of the AG's blocks, rounded up: the shift of packed block numbers.
    pub fn ag_block_log(&self) -> u32 {
        self.ag_blocks.max(1).next_power_of_two().trailing_zeros()
    }

    /// Inodes of a block.
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size / self.inode_size.max(1)
    }
}
