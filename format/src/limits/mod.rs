//! Limits that follow from a geometry: records per block, btree heights, minimum log size, the blocks at the start of
//! an AG. Pure arithmetic, used to create and grow volumes and to compute reservations.
//!
//! | part | subject |
//! |---|---|
//! | [`VolumeShape`] | the parameters of a volume that determine its limits |
//! | [`levels`] | records per block, btree heights |
//! | [`ag`] | the blocks at the start of an AG, and the limits of its size |
//! | [`log`] | the limits of the log size |
//!
//! # Invariants
//! Every function terminates without panic. Results are meaningful for a [`VolumeShape`] whose sizes are powers of two
//! in the ranges of the format document.

pub mod ag;
pub mod levels;
pub mod log;

use crate::features::Features;
use crate::geometry::Geometry;

/// The parameters of a volume that determine its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeShape {
    /// Block size in bytes.
    pub block_size: u32,
    /// Sector size in bytes.
    pub sector_size: u32,
    /// Inode size in bytes.
    pub inode_size: u32,
    /// Directory block size in bytes.
    pub dir_block_size: u32,
    /// Number of blocks of every AG except the last.
    pub ag_blocks: u32,
    /// Log stripe unit in bytes; 0 for none.
    pub log_stripe_unit: u32,
    /// Feature bits.
    pub features: Features,
}

impl VolumeShape {
    /// The parameters of an existing volume.
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

    /// log2 of the AG's blocks, rounded up: the shift of AG numbers in file system blocks.
    pub fn ag_block_log(&self) -> u32 {
        self.ag_blocks.max(1).next_power_of_two().trailing_zeros()
    }

    /// Number of inodes per block.
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size / self.inode_size.max(1)
    }
}
