//! A volume becomes larger or smaller.
//!
//! # Growing, while others work
//!
//! | step | what | a power cut then leaves |
//! |---|---|---|
//! | 1 | the device is made longer, where it is a file | the old volume |
//! | 2 | headers and tree roots of new AGs are written behind the old end | the old volume |
//! | 3 | one transaction: the last AG's length and free space, the superblock | the old volume, or the new one by the log |
//! | 4 | the superblock's copies | the new volume; the next opening completes them |
//! | 5 | the superblock goes home, before anything else in the new space is given out | the new volume |
//! | 6 | new AGs and blocks are for everybody | the new volume |
//!
//! # Shrinking
//! An open volume loses the free end of its last AG, by a transaction of the same kind. Whole AGs go only where nobody
//! uses the volume, and without the log: its recovery by Linux refuses a number of AGs that became smaller. They are
//! empty, so the superblock alone says that they are gone.

use std::mem::offset_of;
use std::sync::Arc;

use base::{AgNumber, errno};
use block::{Device, Durability};
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::limits::VolumeShape;
use format::new_ag::{AgLayout, NewAg};
use format::ondisk::{U32, U64};
use format::superblock::{CRC_OFFSET, RawSuperblock, copy_of};
use format::{Geometry, checksum};
use journal::engine::Transaction;
use zerocopy::FromBytes;

use crate::superblock::{lock_superblock, read_superblock, write_copies};
use crate::{Error, Options, Result, Volume};

/// What limits how small a volume can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShrinkLimit {
    /// The fewest blocks that it can have as it is.
    pub min_blocks: u64,
    /// The block behind the last one that is in use, of the whole volume; headers of an empty AG do not count.
    pub used_blocks: u64,
}

/// Fewest AGs that [`shrink`] leaves, unless it is asked for fewer blocks than as many have: with one, `xfs_repair` has
/// no copy of the superblock to compare.
pub const MIN_AGS: u32 = 2;

impl Volume {
    /// Makes the volume larger, up to `blocks` blocks, while others use it; how many it has then. A last AG that would
    /// be too small is left out, so the new size may be a little less, and may be the old one. The device is made
    /// longer where it is a file.
    ///
    /// # Errors
    /// `EINVAL` for fewer blocks than there are; `EFBIG` where that is more than the format knows, or more than an open
    /// volume is prepared for: 64 times the size that it was opened with. What the device meets: before anything has
    /// changed, or else the volume is shut down.
    pub fn grow(&self, blocks: u64) -> Result<u64> {
        let _one = self.resize_lock.lock();
        let now = self.geometry.blocks();
        if blocks < now {
            return Err(Error::refused(errno::EINVAL, "the volume is larger than that: shrink it"));
        }
        let too_large = |why| Error::refused(errno::EFBIG, why);
        let blocks = self.geometry.fit(blocks).map_err(|_| too_large("no volume can be as large as that"))?;
        if blocks <= now {
            return Ok(now);
        }
        if blocks > self.geometry.foreseen {
            return Err(too_large(
                "an open volume grows to 64 times its size at most: unmount it, open it again and go on",
            ));
        }
        let target = self.geometry.clone();
        target.resize(blocks);
        let device = self.device();
        if device.size() < target.bytes() && device.refresh_size()? < target.bytes() {
            device.set_size(target.bytes())?;
        }
        self.write_new_groups(&target)?;
        let mut change = self.begin(self.reservations.resize)?;
        let gained = self.groups.extend_last(&mut change.tx, blocks, || self.tell(blocks))?;
        self.log_size(
            &mut change.tx,
            &target,
            self.groups.free_blocks() + free_of_new(&self.groups, &target),
        )?;
        change.commit(&mut [])?;
        self.settle_superblock()?;
        self.inode_cache.shared().unlinked.grow(target.ag_count());
        self.or_shut_down(|| Ok(self.groups.adopt_new(&mut self.reader()?.tx, gained)?))?;
        Ok(blocks)
    }

    /// Makes the last AG shorter, so that the volume has `blocks` blocks, while others use it. The device keeps its
    /// length: see [`shrink`].
    ///
    /// # Errors
    /// `ENOSPC`, with nothing changed, where what would be cut off is in use or promised, or more than the last AG's
    /// blocks are to go. `EINVAL` for more blocks than there are.
    pub fn shrink(&self, blocks: u64) -> Result<()> {
        let _one = self.resize_lock.lock();
        let now = self.geometry.blocks();
        if blocks >= now {
            let larger = Error::refused(errno::EINVAL, "the volume is smaller than that: grow it");
            return if blocks == now { Ok(()) } else { Err(larger) };
        }
        // What was freed is free for good, and no record of what it held is left in the log.
        inode::inactive::drain(self.inode_cache.shared());
        self.log.push_all()?;
        let mut change = self.begin(self.reservations.resize)?;
        self.groups.shorten_last(&mut change.tx, blocks, || self.tell(blocks))?;
        self.log_size(&mut change.tx, &self.geometry, self.groups.free_blocks())?;
        change.commit(&mut [])?;
        self.settle_superblock()
    }

    /// What is free at the end of the volume. Exact while nobody changes it.
    ///
    /// # Errors
    /// What reading meets.
    pub fn shrink_limit(&self) -> Result<ShrinkLimit> {
        inode::inactive::drain(self.inode_cache.shared());
        self.log.flush_busy()?;
        let mut reader = self.reader()?;
        let geometry = &self.geometry;
        let none = ShrinkLimit { min_blocks: geometry.blocks(), used_blocks: geometry.blocks() };
        for ag in geometry.ags().rev() {
            let Some(tail) = self.groups.free_tail(&mut reader.tx, ag)? else { return Ok(none) };
            let before = u64::from(ag.get()) * u64::from(geometry.ag_blocks);
            if tail.is_empty && ag.get() >= MIN_AGS {
                continue;
            }
            let used = before + u64::from(tail.used_end);
            return Ok(ShrinkLimit { min_blocks: before + u64::from(tail.least), used_blocks: used });
        }
        Ok(none)
    }

    /// All that knows of the size.
    fn tell(&self, blocks: u64) {
        self.geometry.resize(blocks);
        self.inode_cache.shared().geometry.resize(blocks);
    }

    /// Headers and roots of the AGs that `target` has beyond those that there are.
    fn write_new_groups(&self, target: &Geometry) -> Result<()> {
        let mut reader = self.reader()?;
        let id = lock_superblock(&mut reader.tx, target)?;
        // Of the old size: the copy in the last AG is the one that tells whether all were brought up to date.
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

    /// The size, in the superblock, with the free blocks that belong to it: Linux refuses more than there are.
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

/// Free blocks of the AGs that are to come.
fn free_of_new(groups: &ag::Groups, target: &Geometry) -> u64 {
    let shape = VolumeShape::of(target);
    let free = |ag| u64::from(AgLayout::new(&shape, target.ag_length(ag), None).free_blocks());
    new_ags(groups, target).map(free).sum()
}

/// What [`shrink`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShrinkReport {
    /// Blocks before.
    pub before: u64,
    /// Blocks after.
    pub after: u64,
    /// What limits it now.
    pub limit: ShrinkLimit,
}

/// Makes a volume that nobody uses smaller: down to `blocks` blocks, or to as few as there can be. Empty AGs at its end
/// go, and the free end of the last one that stays. It is cleanly unmounted then. The device keeps its length.
///
/// # Errors
/// As [`Volume::open`] and [`Volume::unmount`]. `ENOSPC`, with nothing changed but that the log is clean, where more is
/// in use; `EINVAL` for more blocks than there are.
pub fn shrink(device: &Arc<dyn Device>, options: &Options, blocks: Option<u64>) -> Result<ShrinkReport> {
    let volume = Volume::open(Arc::clone(device), options.clone())?;
    let before = volume.geometry.blocks();
    let end = match volume.shrink_limit() {
        Ok(end) => end,
        Err(error) => return volume.unmount().and(Err(error)),
    };
    let least = end.min_blocks.min(before);
    let wanted = blocks.unwrap_or(least);
    let refused = if wanted > before {
        Some(Error::refused(errno::EINVAL, "the volume is smaller than that: grow it"))
    } else if volume.geometry.fit(wanted).is_ok_and(|fit| fit < least) {
        Some(error::Error::NoSpace { what: "shrinking the volume: blocks at its end are in use" }.into())
    } else {
        None
    };
    let wanted = volume.geometry.fit(wanted).unwrap_or(before);
    let (ag_blocks, ag_count) = (u64::from(volume.geometry.ag_blocks), volume.geometry.ag_count());
    volume.unmount()?;
    if let Some(refused) = refused {
        return Err(refused);
    }
    let stays = wanted.div_ceil(ag_blocks) as u32; // no more than there are
    if stays < ag_count {
        drop_groups(&**device, stays)?;
    }
    let volume = Volume::open(Arc::clone(device), options.clone())?;
    // More can be cut off once less must be kept for the trees of what is left.
    let done = match blocks {
        Some(_) => volume.shrink(wanted),
        None => volume.minimize(wanted),
    };
    let (after, end) = (volume.geometry.blocks(), volume.shrink_limit());
    let ended = volume.unmount();
    done?;
    let end = end?;
    ended.map(|()| ShrinkReport { before, after, limit: end })
}

impl Volume {
    /// As small as it can be. What must stay for trees is known for certain only when blocks are taken: where that
    /// takes more than was thought, the size before it is the smallest.
    fn minimize(&self, first: u64) -> Result<()> {
        let mut least = first;
        while least < self.geometry.blocks() {
            match self.shrink(least) {
                Err(error) if error.errno() == errno::ENOSPC => return Ok(()),
                done => done?,
            }
            least = self.shrink_limit()?.min_blocks;
        }
        Ok(())
    }
}

/// Takes AGs of a clean volume away that hold nothing: only the first `stays` stay, each of full length.
fn drop_groups(device: &dyn Device, stays: u32) -> Result<()> {
    let superblock = read_superblock(device)?;
    let geometry = &superblock.geometry;
    let mut free = 0;
    for ag in geometry.ags().skip(stays as usize) {
        free += free_of_empty(device, geometry, ag)?;
    }
    let mut sector = vec![0; geometry.sector_size as usize];
    device.read_at(0, &mut sector)?;
    let left = geometry.clone();
    left.resize(u64::from(stays) * u64::from(geometry.ag_blocks));
    if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(&mut sector) {
        raw.dblocks = U64::new(left.blocks());
        raw.agcount = U32::new(stays);
        raw.fdblocks = U64::new(raw.fdblocks.get().saturating_sub(free));
    }
    checksum::store(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector, Durability::Buffered)?;
    device.flush()?;
    write_copies(device, &left, &sector)
}

/// The free blocks of an AG, of which nothing else may be in use.
fn free_of_empty(device: &dyn Device, geometry: &Geometry, ag: AgNumber) -> Result<u64> {
    let header = |sector| {
        let mut bytes = vec![0; geometry.sector_size as usize];
        device.read_at(geometry.ag_header_daddr(ag, sector).get() << 9, &mut bytes).map(|()| bytes)
    };
    let damaged = |damage| error::Error::damaged(format::Place::ag(ag), damage);
    let (agf, agi) = (header(1)?, header(2)?);
    let agf = RawAgf::verify(&agf, geometry, ag).map_err(damaged)?;
    let agi = RawAgi::verify(&agi, geometry, ag).map_err(damaged)?;
    let free = agf.freeblks.get() + agf.flcount.get();
    let roots = VolumeShape::of(geometry).roots().end;
    if agi.count.get() > 0 || free + roots != geometry.ag_length(ag) {
        return Err(Error::refused(errno::EBUSY, "an allocation group that should go is in use"));
    }
    Ok(free.into())
}
