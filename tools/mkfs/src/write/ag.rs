//! Headers and btree roots of an AG.

use base::AgNumber;
use format::Geometry;
use format::btree::InodeChunk;
use format::new_ag::NewAg;
use format::ondisk::{U16, U32, U64};

use super::superblock;
use crate::plan::Plan;

/// Number of free blocks before the first inodes are allocated, including those of the AGFLs.
pub fn free_blocks(plan: &Plan) -> u64 {
    let log = if plan.log.start.is_some() { u64::from(plan.log.blocks) } else { 0 };
    plan.blocks - u64::from(plan.ag_count) * u64::from(plan.roots().end) - log
}

/// The first blocks of an AG: headers and btree roots.
pub fn head(plan: &Plan, geometry: &Geometry, ag: u32) -> Vec<u8> {
    let space = plan.space(ag);
    let chunks = if space.chunk.is_some() { first_chunks(plan) } else { Vec::new() };
    let new_ag = NewAg { geometry, ag: AgNumber(ag), space: &space, chunks: &chunks };
    new_ag.head(&superblock::copy(plan, ag))
}

/// The inobt records of the first inodes. The first three inodes are in use.
fn first_chunks(plan: &Plan) -> Vec<InodeChunk> {
    let sparse = plan.shape.features.sparse_inodes();
    (0..plan.first_inodes() / 64)
        .map(|n| {
            let used = if n == 0 { 3 } else { 0 };
            InodeChunk {
                // In AG 0 the number in the AG is equal to the inode number.
                startino: U32::new(plan.root_inode() as u32 + 64 * n),
                holemask: U16::new(0),
                count: if sparse { 64 } else { 0 },
                freecount: 64 - used,
                free: U64::new(u64::MAX << used),
            }
        })
        .collect()
}
