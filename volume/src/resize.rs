//! Growing and shrinking.
//!
//! | part | subject |
//! |---|---|
//! | [`Volume::grow`], [`Volume::shrink`] | an open volume |
//! | [`grow`], [`shrink`] | a volume that is not in use: larger than an open one can grow, or without whole AGs |
//! | [`GrowError`], [`ShrinkError`] | errors of these |
//!
//! # Growing
//! The volume stays usable.
//!
//! | step | | state after a power cut |
//! |---|---|---|
//! | 1 | extend the device if it is a file | the old volume |
//! | 2 | write headers and btree roots of new AGs after the old end | the old volume |
//! | 3 | one transaction: length and free space of the last AG, superblock | the old or (after log recovery) the new volume |
//! | 4 | write the copies of the superblock | the new volume; the next open completes the copies |
//! | 5 | write the superblock, before new space is allocated | the new volume |
//! | 6 | make the new AGs and blocks available | the new volume |
//!
//! # Shrinking
//! An open volume can shrink by the free end of its last AG, with a similar transaction. Whole AGs are removed only
//! from a volume that is not in use, and without the log, because log recovery in Linux refuses a smaller number of
//! AGs. Only empty AGs are removed, so writing the superblock is enough.

mod error;
mod offline;

use std::mem::offset_of;

use base::{AgNumber, errno};
use block::Durability;
use format::Geometry;
use format::limits::VolumeShape;
use format::new_ag::{AgLayout, NewAg};
use format::ondisk::{U32, U64};
use format::superblock::{RawSuperblock, copy_of};
use journal::engine::Transaction;
use zerocopy::FromBytes;

use crate::superblock::lock_superblock;
use crate::{Error, Result, Volume};
pub use error::{GrowError, ShrinkError};
pub use offline::{GrowReport, NewSize, ShrinkReport, grow, shrink};

/// Limit of shrinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShrinkLimit {
    /// Minimum size in blocks.
    pub min_blocks: u64,
    /// End of the last block in use. Headers of empty AGs are not counted.
    pub used_blocks: u64,
}

/// Minimum number of AGs that [`shrink`] keeps if no size is given: with one AG, `xfs_repair` has no copy of the
/// superblock to compare.
pub const MIN_AGS: u32 = 2;

impl Volume {
    /// Grows the volume to `blocks` blocks, and the device if it is a file. Returns the new size, which is smaller than
    /// `blocks` if the last AG would be too small. The volume stays usable. See also [`grow`].
    ///
    /// # Errors
    /// `EINVAL` for a smaller size; `EFBIG` for more than the format allows, or more than 64 times the size with which
    /// the volume was opened. Errors of the device: if the change is already committed, the volume is shut down.
    pub fn grow(&self, blocks: u64) -> Result<u64> {
        let _guard = self.resize_lock.lock();
        let current = self.geometry.blocks();
        if blocks < current {
            return Err(Error::refused(
                errno::EINVAL,
                "the new size is smaller than the volume: shrink it instead",
            ));
        }
        let too_large = |why| Error::refused(errno::EFBIG, why);
        let blocks =
            self.geometry.fit(blocks).map_err(|_| too_large("the new size exceeds the maximum of XFS"))?;
        if blocks <= current {
            return Ok(current);
        }
        if blocks > self.geometry.foreseen {
            return Err(too_large(
                "an open volume grows to at most 64 times its size: unmount it, open it again and continue",
            ));
        }
        let target = self.geometry.clone();
        target.resize(blocks);
        let device = self.device();
        if device.size() < target.bytes() && device.refresh_size()? < target.bytes() {
            device.set_size(target.bytes())?;
        }
        self.write_new_groups(&target)?;
        let mut operation = self.begin(self.reservations.resize)?;
        let new_blocks = self.groups.extend_last(&mut operation.tx, blocks, || self.set_size(blocks))?;
        self.log_size(
            &mut operation.tx,
            &target,
            self.groups.free_blocks() + free_blocks_of_new(&self.groups, &target),
        )?;
        operation.commit(&mut [])?;
        self.write_superblocks()?;
        self.inode_cache.shared().unlinked.grow(target.ag_count());
        self.or_shut_down(|| Ok(self.groups.adopt_new(&mut self.reader()?.tx, new_blocks)?))?;
        Ok(blocks)
    }

    /// Shrinks the volume to `blocks` blocks, by shortening the last AG. The device keeps its length. The volume stays
    /// usable. See also [`shrink`].
    ///
    /// # Errors
    /// `ENOSPC`, with nothing changed, if blocks to be removed are in use or reserved, or are not all in the last AG.
    /// `EINVAL` for a larger size.
    pub fn shrink(&self, blocks: u64) -> Result<()> {
        let _guard = self.resize_lock.lock();
        let current = self.geometry.blocks();
        if blocks >= current {
            let larger =
                Error::refused(errno::EINVAL, "the new size is larger than the volume: grow it instead");
            return if blocks == current { Ok(()) } else { Err(larger) };
        }
        // After this, freed blocks are not busy, and the log has no items for them.
        inode::inactive::drain(self.inode_cache.shared());
        self.log.push_all()?;
        let mut operation = self.begin(self.reservations.resize)?;
        self.groups.shorten_last(&mut operation.tx, blocks, || self.set_size(blocks))?;
        self.log_size(&mut operation.tx, &self.geometry, self.groups.free_blocks())?;
        operation.commit(&mut [])?;
        self.write_superblocks()
    }

    /// Returns how far the volume can shrink. Exact while no other thread changes it.
    ///
    /// # Errors
    /// Damage; errors of the device.
    pub fn shrink_limit(&self) -> Result<ShrinkLimit> {
        inode::inactive::drain(self.inode_cache.shared());
        self.log.flush_busy()?;
        let mut reader = self.reader()?;
        let geometry = &self.geometry;
        let current_size = ShrinkLimit { min_blocks: geometry.blocks(), used_blocks: geometry.blocks() };
        for ag in geometry.ags().rev() {
            let Some(tail) = self.groups.free_tail(&mut reader.tx, ag)? else { return Ok(current_size) };
            let before = u64::from(ag.get()) * u64::from(geometry.ag_blocks);
            if tail.is_empty && ag.get() >= MIN_AGS {
                continue;
            }
            let used = before + u64::from(tail.used_end);
            return Ok(ShrinkLimit { min_blocks: before + u64::from(tail.least), used_blocks: used });
        }
        Ok(current_size)
    }

    /// Sets the size in memory.
    fn set_size(&self, blocks: u64) {
        self.geometry.resize(blocks);
        self.inode_cache.shared().geometry.resize(blocks);
    }

    /// Writes headers and btree roots of the new AGs of `target`.
    fn write_new_groups(&self, target: &Geometry) -> Result<()> {
        let mut reader = self.reader()?;
        let id = lock_superblock(&mut reader.tx, target)?;
        // With the old size: the copy in the last AG shows whether all copies were updated.
        let copy = copy_of(reader.tx.bytes(id));
        drop(reader);
        let device = self.device();
        for ag in new_ags(&self.groups, target) {
            let space = AgLayout::new(&VolumeShape::of(target), target.ag_length(ag), None);
            let head = NewAg { geometry: target, ag, space: &space, chunks: &[] }.head(&copy);
            let at = target.ag_header_daddr(ag, 0).get() << 9;
            device.write_at(at, &head, Durability::Buffered)?;
        }
        Ok(device.flush()?)
    }

    /// Logs the size in the superblock, with the number of free blocks: Linux refuses more free blocks than blocks.
    fn log_size(&self, tx: &mut Transaction, target: &Geometry, free: u64) -> Result<()> {
        let id = lock_superblock(tx, target)?;
        let first = offset_of!(RawSuperblock, dblocks);
        let end = offset_of!(RawSuperblock, fdblocks) + 8;
        let edit = tx.buffer_mut(id);
        edit.log(first..end);
        if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(edit.all_mut()) {
            raw.dblocks = U64::new(target.blocks());
            raw.agcount = U32::new(target.ag_count());
            raw.fdblocks = U64::new(free.min(target.blocks()));
        }
        Ok(())
    }
}

fn new_ags(groups: &ag::Groups, target: &Geometry) -> impl Iterator<Item = AgNumber> {
    (groups.count()..target.ag_count()).map(AgNumber)
}

/// Number of free blocks in the new AGs of `target`.
fn free_blocks_of_new(groups: &ag::Groups, target: &Geometry) -> u64 {
    let shape = VolumeShape::of(target);
    let free = |ag| u64::from(AgLayout::new(&shape, target.ag_length(ag), None).free_blocks());
    new_ags(groups, target).map(free).sum()
}
