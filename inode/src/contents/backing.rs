//! File contents in memory, backed by the maps of their inodes.

use std::sync::{Arc, Weak};

use ag::{AllocTarget, Claim, ClaimRequest, Groups, RmapChange, RmapReservations};
use backing::{Backing, Mapping, TIMESTAMP_TICK_NANOS, WriteCompletion};
use base::{FileBlock, FsBlock, Ino, errno};
use error::{Error, Result};
use format::inode::{ForkKind, ag_of};

use super::{
    File, claim, fill_units, finish, free_written_beyond, map_first, set_size, trim, truncate, unit,
};
use crate::inode::Inode;
use crate::reservation::ANY_EXTENTS;
use crate::shared::Shared;
use crate::state::InodeTime;

const DROPPED: Error = Error::Refused { errno: errno::EIO, why: "the volume was closed" };

/// An inode by a weak reference. Contents are attached to their inode, and so must not keep it in memory. Callers that
/// work on the file hold a reference; the inode cache holds one while the file is dirty.
#[derive(Debug)]
pub struct WeakInode {
    ino: Ino,
    inode: Weak<Inode>,
}

impl WeakInode {
    /// Returns a weak reference to an inode.
    pub fn new(inode: &Arc<Inode>) -> Self {
        Self { ino: inode.ino(), inode: Arc::downgrade(inode) }
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the inode.
    ///
    /// # Errors
    /// `EIO` if it has been dropped: the volume was closed.
    pub fn upgrade(&self) -> Result<Arc<Inode>> {
        self.inode.upgrade().ok_or(DROPPED)
    }
}

/// The extent maps of a volume's files, and its free space.
#[derive(Debug)]
pub struct VolumeBacking {
    shared: Arc<Shared>,
    groups: Arc<Groups>,
}

impl VolumeBacking {
    /// Returns the backing of a volume.
    pub fn new(shared: &Arc<Shared>, groups: &Arc<Groups>) -> Self {
        Self { shared: Arc::clone(shared), groups: Arc::clone(groups) }
    }

    fn file<'a>(&'a self, inode: &'a Arc<Inode>) -> File<'a> {
        File { shared: &self.shared, groups: &self.groups, inode }
    }

    /// Rounds a size up to the first block beyond it.
    fn block_beyond(&self, size: u64) -> FileBlock {
        FileBlock(size.div_ceil(self.shared.geometry.block_size.into()))
    }
}

/// Block counts of one claim or of one reservation in an AG, which have 32 bits.
fn clamp(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Splits a number of blocks into 32-bit parts.
fn parts(blocks: u64) -> impl Iterator<Item = u32> {
    let mut left = blocks;
    std::iter::from_fn(move || {
        let part = clamp(left);
        left -= u64::from(part);
        (part > 0).then_some(part)
    })
}

impl Backing for VolumeBacking {
    type File = WeakInode;
    type Claim = Claim;
    type RmapReservations = RmapReservations;

    fn block_log(&self) -> u32 {
        self.shared.geometry.block_log.into()
    }

    fn device_offset(&self, block: FsBlock) -> u64 {
        // A block outside the volume is outside the device, too.
        self.shared.geometry.fs_block_offset(block).unwrap_or(u64::MAX)
    }

    fn note_unlogged_write(&self) -> u64 {
        self.shared.target.note_unlogged_write()
    }

    fn unlogged_writes(&self) -> u64 {
        self.shared.target.unlogged_writes()
    }

    fn request_commit(&self) {
        self.shared.target.request_commit();
    }

    fn ino(&self, file: &WeakInode) -> Ino {
        file.ino
    }

    fn group(&self, file: &WeakInode) -> u64 {
        ag_of(file.ino, &self.shared.geometry).unwrap_or_default().get().into()
    }

    fn groups(&self) -> u64 {
        self.shared.geometry.ag_count().into()
    }

    fn group_of_block(&self, block: FsBlock) -> u64 {
        block.get() >> self.shared.geometry.ag_block_log
    }

    fn size(&self, file: &WeakInode) -> Result<u64> {
        Ok(file.upgrade()?.read().size())
    }

    fn map(&self, file: &WeakInode, offset: FileBlock, count: u64) -> Result<Mapping> {
        map_first(self.file(&file.upgrade()?), offset, FileBlock(offset.get().saturating_add(count)))
    }

    fn reserve(&self, blocks: u64) -> Result<()> {
        let mut reserved = 0;
        for part in parts(blocks) {
            match self.groups.reserve_blocks(part) {
                Ok(mut reservation) => reserved += u64::from(reservation.detach(part)),
                Err(error) => {
                    self.unreserve(reserved);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn unreserve(&self, blocks: u64) {
        parts(blocks).for_each(|part| drop(self.groups.attach_blocks(part)));
    }

    fn reserve_rmap_for_write(&self, mapping: &Mapping, writes: u64) -> Result<RmapReservations> {
        let change = if mapping.shared { RmapChange::Unmap } else { RmapChange::Convert };
        let mut reservations = RmapReservations::default();
        let mut reader = self.shared.reader();
        if let Some(new) = self.groups.reserve_rmap(&mut reader, mapping.start, change, clamp(writes))? {
            reservations.add(new);
        }
        Ok(reservations)
    }

    fn extents(&self, file: &WeakInode, more: u64) -> Result<u64> {
        let inode = file.upgrade()?;
        let state = inode.read();
        state.check_extent_count(ForkKind::Data, usize::try_from(more).unwrap_or(usize::MAX))?;
        Ok(state.extent_count(ForkKind::Data))
    }

    fn tree_blocks(&self, extents: Option<u64>, records: u64) -> u64 {
        self.shared.reservations.map_blocks_for(extents.unwrap_or(ANY_EXTENTS), records)
    }

    fn claim(&self, file: &WeakInode, near: Option<FsBlock>, max: u64) -> Result<Claim> {
        let own_ag = || AllocTarget::Ag(ag_of(file.ino, &self.shared.geometry).unwrap_or_default());
        let target = near.map_or_else(own_ag, AllocTarget::Block);
        claim(&self.shared, &self.groups, &ClaimRequest { target, min: 1, max: clamp(max), align: 1 })
    }

    fn finish(&self, files: &mut [WriteCompletion<'_, Self>]) -> Result<()> {
        finish(&self.shared, &self.groups, files)
    }

    fn set_size(&self, file: &WeakInode, size: u64, shrinks: bool) -> Result<()> {
        let set = if shrinks { truncate } else { set_size };
        set(self.file(&file.upgrade()?), size)
    }

    fn free_written_beyond(&self, file: &WeakInode, size: u64) -> Result<()> {
        free_written_beyond(self.file(&file.upgrade()?), self.block_beyond(size))
    }

    fn alloc_unit(&self, file: &WeakInode) -> Result<u64> {
        Ok(unit(&file.upgrade()?.read()).into())
    }

    fn fill_units(&self, file: &WeakInode, from: FileBlock, to: FileBlock) -> Result<()> {
        fill_units(self.file(&file.upgrade()?), from, to)
    }

    fn trim(&self, file: &WeakInode, size: u64) -> Result<()> {
        trim(self.file(&file.upgrade()?), self.block_beyond(size)).map(drop)
    }

    fn touch(&self, file: &WeakInode) -> Result<()> {
        let inode = file.upgrade()?;
        let now = self.shared.now();
        let nanos = |time: format::timestamp::Timestamp| {
            i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
        };
        let times = inode.read().dinode().times();
        let old = nanos(times.modify).min(nanos(times.change));
        if (old..old + i128::from(TIMESTAMP_TICK_NANOS)).contains(&nanos(now)) {
            return Ok(());
        }
        let tx = self.shared.begin(self.shared.reservations.inode)?;
        let mut state = inode.lock();
        state.set_times(&[InodeTime::Modify, InodeTime::Change], now);
        tx.commit(&mut [&mut state])
    }
}
