//! The primary superblock and its copies.

use format::new_ag::{put, seal};
use format::ondisk::{U16, U32, U64};
use format::superblock::{CRC_OFFSET, RawSuperblock};
use zerocopy::FromZeros;

use super::ag;
use crate::plan::Plan;

/// The sector of the primary superblock.
pub fn primary(plan: &Plan) -> Vec<u8> {
    let mut raw = common(plan);
    let root = plan.root_inode();
    raw.rootino = U64::new(root);
    raw.rbmino = U64::new(root + 1);
    raw.rsumino = U64::new(root + 2);
    raw.inprogress = 0;
    raw.icount = U64::new(plan.first_inodes().into());
    raw.ifree = U64::new((plan.first_inodes() - 3).into());
    let free = ag::free_blocks(plan) - u64::from(plan.chunk_blocks());
    raw.fdblocks = U64::new(free);
    sector(plan, &raw)
}

/// The sector of the copy in an AG, like those of `mkfs.xfs`: `inprogress` is set, `fdblocks` is the value before the
/// first inodes were allocated, and `rootino` is set in two copies only.
pub fn copy(plan: &Plan, number: u32) -> Vec<u8> {
    let mut raw = common(plan);
    if number == plan.ag_count - 1 || number == (plan.ag_count - 1) / 2 {
        raw.rootino = U64::new(plan.root_inode());
    }
    raw.fdblocks = U64::new(ag::free_blocks(plan));
    sector(plan, &raw)
}

fn sector(plan: &Plan, raw: &RawSuperblock) -> Vec<u8> {
    let mut sector = vec![0; plan.shape.sector_size as usize];
    put(&mut sector, 0, raw);
    let length = sector.len();
    seal(&mut sector, 0, length, CRC_OFFSET);
    sector
}

fn log2(size: u32) -> u8 {
    size.trailing_zeros() as u8
}

/// The fields that all superblocks have in common.
fn common(plan: &Plan) -> RawSuperblock {
    let shape = &plan.shape;
    let features = shape.features;
    let ag_block_log = shape.ag_block_log() as u8;
    let start = plan.log.start;
    let log_start = start.map_or(0, |start| u64::from(start.ag) << ag_block_log | u64::from(start.block));
    // Zeros mean 512 bytes.
    let (log_sector_log, log_sector_size) =
        if plan.log.sector_size > 512 { (log2(plan.log.sector_size), plan.log.sector_size) } else { (0, 0) };
    let mut raw = RawSuperblock::new_zeroed();
    raw.magicnum = U32::new(format::superblock::MAGIC);
    raw.blocksize = U32::new(shape.block_size);
    raw.dblocks = U64::new(plan.blocks);
    raw.uuid = plan.uuid;
    raw.logstart = U64::new(log_start);
    raw.rootino = U64::MAX_VALUE;
    raw.rbmino = U64::MAX_VALUE;
    raw.rsumino = U64::MAX_VALUE;
    // Without a realtime device it has the minimum, 4 KiB.
    raw.rextsize = U32::new((4096 / shape.block_size).max(1));
    raw.agblocks = U32::new(shape.ag_blocks);
    raw.agcount = U32::new(plan.ag_count);
    raw.logblocks = U32::new(plan.log.blocks);
    raw.versionnum = U16::new(features.version);
    raw.sectsize = U16::new(shape.sector_size as u16);
    raw.inodesize = U16::new(shape.inode_size as u16);
    raw.inopblock = U16::new(shape.inodes_per_block() as u16);
    raw.fname = plan.label;
    raw.blocklog = log2(shape.block_size);
    raw.sectlog = log2(shape.sector_size);
    raw.inodelog = log2(shape.inode_size);
    raw.inopblog = log2(shape.inodes_per_block());
    raw.agblklog = ag_block_log;
    raw.inprogress = 1;
    raw.imax_pct = plan.max_inode_percent;
    raw.inoalignmt = U32::new(plan.inode_align);
    raw.unit = U32::new(plan.stripe_unit);
    raw.width = U32::new(plan.stripe_width);
    raw.dirblklog = log2(shape.dir_block_size / shape.block_size);
    raw.logsectlog = log_sector_log;
    raw.logsectsize = U16::new(log_sector_size as u16);
    raw.logsunit = U32::new(shape.log_stripe_unit.max(1));
    raw.features2 = U32::new(features.features2);
    raw.bad_features2 = U32::new(features.features2);
    raw.features_ro_compat = U32::new(features.ro_compat);
    raw.features_incompat = U32::new(features.incompat);
    raw.spino_align = U32::new(plan.sparse_align);
    raw
}
