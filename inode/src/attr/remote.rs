//! Values in blocks of their own.
//!
//! # How a value becomes one
//! 1. [`claim`] keeps free blocks, in memory alone, that are not busy: whatever they held is gone for good, also after
//!    a power cut.
//! 2. [`write()`] writes them past the log. Nothing refers to them yet.
//! 3. One transaction takes them out of free space, maps them and inserts the attribute. The log makes what was written
//!    past it stable before the commit.
//!
//! Where the attribute is refused after all, the claim is dropped, and there is nothing to undo.
//!
//! A power cut before the commit leaves free blocks with something in them.

use std::sync::Arc;

use ag::{AllocTarget, Claim, ClaimRequest, Groups};
use base::lock::Rank;
use base::{Daddr, FileBlock, FsBlock, Ino};
use format::attr::MAX_VALUE;
use format::attr::remote::{MAGIC, block_count, bytes_per_block, verify};
use format::checksum;
use format::damage::Damage;
use format::inode::{ForkKind, ag_of};
use format::ondisk::{LeU32, U32, U64};
use format::remote_block::{CRC_OFFSET, RemoteBlockHeader};
use journal::engine::{DiskExtent, Error, Transaction};
use zerocopy::IntoBytes;

use super::{Attributes, Result};
use crate::contents;
use crate::fork::Fork;
use crate::shared::Shared;
use crate::space::BlockRun;

/// Pieces in which a value usually lies at most: each changes the trees of free space, and takes space in the log.
pub const USUAL_EXTENTS: usize = 4;

const SCATTERED: Error =
    Error::NoSpace { what: "the value of an attribute: free space is in too small pieces" };

/// Claims blocks for a value of so many bytes, in so many pieces at most, near to the inode; in the order of the value.
/// The caller has reserved as many blocks, and holds no locks.
///
/// # Errors
/// No space; damage; a volume that was shut down.
pub fn claim(
    shared: &Shared,
    groups: &Arc<Groups>,
    ino: Ino,
    (length, most_pieces): (u32, usize),
) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    let mut left = block_count(length, &shared.geometry);
    let mut near = AllocTarget::Ag(ag_of(ino, &shared.geometry).unwrap_or_default());
    while left > 0 {
        if claims.len() >= most_pieces {
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

/// The blocks of claims.
pub fn runs(claims: &[Claim]) -> Vec<BlockRun> {
    claims.iter().map(|claim| BlockRun { start: claim.start(), count: claim.count() }).collect()
}

/// Writes a value into its blocks, each with a header.
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
    /// The value that begins at a block of the fork.
    pub(super) fn read_remote(&mut self, first: FileBlock, length: u32) -> Result<Vec<u8>> {
        let geometry = self.geometry();
        if length > MAX_VALUE {
            let most = format_args!("at most {MAX_VALUE}").to_string();
            return Err(self.damaged(Damage::new("attribute leaf", "valuelen", most, length)));
        }
        let mut value = Vec::with_capacity(length as usize);
        for n in 0..u64::from(block_count(length, geometry)) {
            let at = self.identity(FileBlock(first.get() + n))?;
            let extent = DiskExtent { daddr: at.daddr, bytes: geometry.block_size };
            let offset = value.len() as u32; // at most 64 KiB
            let guard = self.shared.buffers.lock_read(&extent.into(), Rank::Fork, |_| Ok(()))?;
            // Never changed in memory: its checksum holds.
            let part = verify(guard.bytes(), geometry, at, offset, length)
                .map_err(|damage| Error::damaged(at.place(), damage))?;
            value.extend_from_slice(part);
        }
        Ok(value)
    }

    /// Maps the blocks of a new value; gives the first.
    pub(super) fn map_remote(&mut self, runs: &[BlockRun]) -> Result<FileBlock> {
        let count = runs.iter().map(|run| u64::from(run.count)).sum();
        let first = self.extents().first_hole(FileBlock(0), count);
        let before = self.state.nblocks();
        let mut at = first;
        for run in runs {
            let count = u64::from(run.count);
            let extent = format::extent::Extent { offset: at, start: run.start, count, unwritten: false };
            let mut fork = Fork::open(self.shared, self.state, ForkKind::Attr)?;
            fork.map(self.tx, self.space, extent)?;
            at = FileBlock(at.get() + count);
        }
        // The value's own blocks were not counted as room.
        let mapped = at.get() - first.get();
        self.count_taken(before + mapped);
        Ok(first)
    }

    /// Unmaps and frees the blocks of a value. Of one that is incomplete, some may not be there.
    pub(super) fn free_remote(&mut self, first: FileBlock, length: u32) -> Result<()> {
        let count = u64::from(block_count(length, self.geometry()));
        self.unmap(first, FileBlock(first.get() + count))
    }
}
