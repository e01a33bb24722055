//! Remote values: values in blocks of their own.
//!
//! # Setting a remote value
//! 1. [`claim`] claims free blocks, in memory only, that are not busy: their old contents are gone for good, even after
//!    a power failure.
//! 2. [`write()`] writes the value to them, past the log. Nothing refers to them yet.
//! 3. One transaction takes them out of free space, maps them and inserts the attribute. The log flushes what was
//!    written past it before the commit becomes stable.
//!
//! If the attribute is refused, the claim is dropped; nothing has to be undone. A power failure before the commit
//! leaves the blocks free.

use std::sync::Arc;

use ag::{AllocTarget, Claim, ClaimRequest, Groups};
use base::lock::Rank;
use base::{Daddr, FileBlock, FsBlock, Ino};
use error::Error;
use format::attr::remote::{MAGIC, block_count, bytes_per_block};
use format::checksum;
use format::inode::ag_of;
use format::ondisk::{LeU32, U32, U64};
use format::remote_block::{CRC_OFFSET, RemoteBlockHeader};
use journal::engine::{DiskExtent, Transaction};
use zerocopy::IntoBytes;

use super::{Attributes, Result};
use crate::contents;
use crate::shared::Shared;
use crate::space::BlockRun;

/// The usual maximum of extents of a value. Each extent changes the free space btrees, and takes log space.
pub const USUAL_EXTENTS: usize = 4;

const SCATTERED: Error =
    Error::NoSpace { what: "the value of an attribute: free space is in too small pieces" };

/// Claims blocks for a value of `length` bytes near the inode, in at most `max_extents` extents; returns them in the
/// order of the value. The caller has reserved the blocks, and holds no locks.
///
/// # Errors
/// [`Error::NoSpace`]; damage; a shut down volume.
pub fn claim(
    shared: &Shared,
    groups: &Arc<Groups>,
    ino: Ino,
    length: u32,
    max_extents: usize,
) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    let mut left = block_count(length, &shared.geometry);
    let mut near = AllocTarget::Ag(ag_of(ino, &shared.geometry).unwrap_or_default());
    while left > 0 {
        if claims.len() >= max_extents {
            return Err(SCATTERED);
        }
        let claim =
            contents::claim(shared, groups, &ClaimRequest { target: near, min: 1, max: left, align: 1 })?;
        left -= claim.count().min(left);
        near = AllocTarget::Block((claim.start().get() + u64::from(claim.count())).into());
        claims.push(claim);
    }
    Ok(claims)
}

/// The claimed blocks.
pub fn runs(claims: &[Claim]) -> Vec<BlockRun> {
    claims.iter().map(|claim| BlockRun { start: claim.start(), count: claim.count() }).collect()
}

/// Writes a value to its blocks, each with a header.
///
/// # Errors
/// [`Error::Device`].
pub fn write(shared: &Shared, tx: &mut Transaction, ino: Ino, runs: &[BlockRun], value: &[u8]) -> Result<()> {
    let geometry = &shared.geometry;
    let per_block = bytes_per_block(geometry) as usize;
    let blocks = runs.iter().flat_map(|run| (run.start.get()..).take(run.count as usize));
    for ((n, part), block) in (0u32..).zip(value.chunks(per_block)).zip(blocks) {
        let offset = geometry.fs_block_offset(FsBlock(block)).unwrap_or(0); // the allocator gives blocks of the volume
        let daddr = Daddr(offset >> 9);
        let header = RemoteBlockHeader {
            magic: U32::new(MAGIC),
            offset: U32::new(n * per_block as u32), // below 64 KiB
            bytes: U32::new(part.len() as u32),
            crc: LeU32::ZERO,
            uuid: geometry.uuid,
            owner: U64::new(ino.get()),
            blkno: U64::new(daddr.get()),
            lsn: U64::new(u64::MAX),
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(part);
        bytes.resize(geometry.block_size as usize, 0);
        checksum::store(&mut bytes, CRC_OFFSET);
        tx.write_now(DiskExtent { daddr, bytes: geometry.block_size }, Rank::Fork, &bytes)?;
    }
    Ok(())
}

impl Attributes<'_> {
    /// Maps the blocks of a new value; returns the first file block.
    pub(super) fn map_remote(&mut self, runs: &[BlockRun]) -> Result<FileBlock> {
        let count = runs.iter().map(|run| u64::from(run.count)).sum();
        let (mut fork, tx) = self.fork.lookup()?;
        let first = fork.first_hole(Some(tx), FileBlock(0), count)?;
        let before = self.fork.state.nblocks();
        let mut at = first;
        for run in runs {
            let count = u64::from(run.count);
            let extent = format::extent::Extent { offset: at, start: run.start, count, unwritten: false };
            let (mut fork, tx, space) = self.fork.map()?;
            fork.map(tx, space, extent)?;
            at = FileBlock(at.get() + count);
        }
        // The blocks of the value are reserved separately.
        let mapped = at.get() - first.get();
        self.fork.count_taken(before + mapped);
        Ok(first)
    }

    /// Unmaps and frees the blocks of a value. An incomplete value may have holes.
    pub(super) fn free_remote(&mut self, first: FileBlock, length: u32) -> Result<()> {
        let count = u64::from(block_count(length, self.geometry()));
        self.fork.unmap(first..FileBlock(first.get() + count))
    }
}
