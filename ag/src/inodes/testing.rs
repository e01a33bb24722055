//! Shared by the tests of this module.

use base::{FsBlock, Ino};
use format::features::{Features, incompat, ro_compat};
use format::geometry::Geometry;

/// A volume of two AGs of 4,096 blocks of 4 KiB, with all inode features.
pub fn geometry() -> Geometry {
    Geometry {
        block_size: 4096,
        block_log: 12,
        sector_size: 512,
        inode_size: 512,
        inode_log: 9,
        inodes_per_block_log: 3,
        dir_block_size: 4096,
        dir_block_log: 0,
        size: 8192.into(),
        foreseen: 8192,
        ag_blocks: 4096,
        ag_block_log: 12,
        inode_align: 8,
        sparse_inode_align: 4,
        log_start: Some(FsBlock(1 << 12 | 16)),
        log_blocks: 1024,
        log_stripe_unit: 0,
        root: Ino(128),
        metadata_root: None,
        uuid: *b"xebec-ag-inodes!",
        features: Features {
            version: 0xb4b5,
            features2: 0x18a,
            compat: 0,
            ro_compat: ro_compat::FINOBT | ro_compat::INOBTCOUNT,
            incompat: incompat::FTYPE | incompat::SPARSE_INODES,
            log_incompat: 0,
        },
    }
}
