//! Resizing a volume that is not in use.

use std::sync::Arc;

use base::{AgNumber, errno};
use block::{Device, Durability};
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::limits::VolumeShape;
use format::ondisk::{U32, U64};
use format::superblock::{CRC_OFFSET, RawSuperblock};
use format::{Geometry, checksum};
use zerocopy::FromBytes;

use super::{GrowError, ShrinkError, ShrinkLimit};
use crate::superblock::{read_superblock, write_copies};
use crate::{Error, Options, Result, Volume};

/// New size of a volume that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This number of bytes.
    Bytes(u64),
    /// This number of bytes more.
    MoreBytes(u64),
    /// The size of the device.
    Device,
}

impl NewSize {
    /// Returns the new size in bytes, given those of the volume and its device.
    pub fn of(self, volume_bytes: u64, device_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::MoreBytes(more) => volume_bytes.saturating_add(more),
            Self::Device => device_bytes,
        }
    }
}

/// Result of [`grow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowReport {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Old size in blocks.
    pub before: u64,
    /// New size in blocks.
    pub after: u64,
    /// Number of AGs.
    pub ag_count: u32,
}

/// Grows a volume that is not in use, and its device if that is a file, and unmounts it cleanly. The volume becomes
/// slightly smaller than `size` if the last AG would be too small.
///
/// An open volume grows to a limited multiple of its size: it is opened as often as necessary.
///
/// # Errors
/// [`GrowError`]. The volume has the old size then, or an intermediate one.
pub fn grow(
    device: &Arc<dyn Device>,
    options: &Options,
    size: NewSize,
) -> std::result::Result<GrowReport, GrowError> {
    let mut before = None;
    loop {
        let volume = Volume::open(Arc::clone(device), options.clone()).map_err(GrowError::Open)?;
        let block_size = volume.geometry.block_size;
        let (current, foreseen) = (volume.geometry.blocks(), volume.geometry.foreseen);
        let before = *before.get_or_insert(current);
        let requested = size.of(before * u64::from(block_size), device.size());
        let target = requested / u64::from(block_size);
        // A size that is impossible is refused by the first step, not after others.
        let step = if volume.geometry.fit(target).is_ok() { target.min(foreseen) } else { target };
        let grown = volume.grow(step).map_err(|error| GrowError::Grow {
            error,
            requested,
            current: current * u64::from(block_size),
            available: device.size(),
        });
        let (after, ag_count) = (volume.geometry.blocks(), volume.geometry.ag_count());
        volume.unmount().map_err(GrowError::Unmount)?;
        grown?;
        if target <= foreseen || after == current {
            return Ok(GrowReport { block_size, before, after, ag_count });
        }
    }
}

/// Result of [`shrink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShrinkReport {
    /// Old size in blocks.
    pub before: u64,
    /// New size in blocks.
    pub after: u64,
    /// Number of AGs.
    pub ag_count: u32,
    /// What prevents a smaller size.
    pub limit: ShrinkLimit,
}

/// Shrinks a volume that is not in use to `blocks` blocks, by default to the minimum, and unmounts it cleanly. Removes
/// empty AGs at the end, and the free end of the last one that remains. The device keeps its length.
///
/// # Errors
/// [`ShrinkError::Larger`], [`ShrinkError::InUse`], and those of [`Volume::open`] and [`Volume::unmount`].
pub fn shrink(
    device: &Arc<dyn Device>,
    options: &Options,
    blocks: Option<u64>,
) -> std::result::Result<ShrinkReport, ShrinkError> {
    let volume = Volume::open(Arc::clone(device), options.clone())?;
    let before = volume.geometry.blocks();
    let limit = match volume.shrink_limit() {
        Ok(limit) => limit,
        Err(error) => return Err(volume.unmount().err().unwrap_or(error).into()),
    };
    let min_blocks = limit.min_blocks.min(before);
    let wanted = blocks.unwrap_or(min_blocks);
    let refused = if wanted > before {
        Some(ShrinkError::Larger)
    } else if volume.geometry.fit(wanted).is_ok_and(|fit| fit < min_blocks) {
        Some(ShrinkError::InUse { min_blocks })
    } else {
        None
    };
    let wanted = volume.geometry.fit(wanted).unwrap_or(before);
    let (ag_blocks, ag_count) = (u64::from(volume.geometry.ag_blocks), volume.geometry.ag_count());
    volume.unmount()?;
    if let Some(refused) = refused {
        return Err(refused);
    }
    let ags_left = wanted.div_ceil(ag_blocks) as u32; // no more than there are
    if ags_left < ag_count {
        remove_ags(&**device, ags_left)?;
    }
    shrink_last_ag(device, options, wanted, blocks.is_none()).map(|report| ShrinkReport { before, ..report })
}

/// Removes the free end of the last AG: down to `wanted` blocks, or, to reach the minimum, beyond.
fn shrink_last_ag(
    device: &Arc<dyn Device>,
    options: &Options,
    wanted: u64,
    to_minimum: bool,
) -> std::result::Result<ShrinkReport, ShrinkError> {
    let volume = Volume::open(Arc::clone(device), options.clone())?;
    let before = volume.geometry.blocks();
    // With fewer AGs, fewer blocks must be kept for btrees, so more can be removed.
    let shrunk = if to_minimum { volume.minimize(wanted) } else { volume.shrink(wanted) };
    let (after, ag_count) = (volume.geometry.blocks(), volume.geometry.ag_count());
    let limit = volume.shrink_limit();
    let unmounted = volume.unmount();
    match (shrunk, limit) {
        (Err(error), Ok(limit)) if error.errno() == errno::ENOSPC && !error.is_of_device() => {
            Err(ShrinkError::InUse { min_blocks: limit.min_blocks.min(after) })
        }
        (shrunk, limit) => {
            shrunk?;
            let limit = limit?;
            unmounted?;
            Ok(ShrinkReport { before, after, ag_count, limit })
        }
    }
}

impl Volume {
    /// Shrinks as far as possible. The blocks to keep for btrees are an estimate: if it is too low for a size, the size
    /// before is the minimum.
    fn minimize(&self, first: u64) -> Result<()> {
        let mut blocks = first;
        while blocks < self.geometry.blocks() {
            match self.shrink(blocks) {
                Err(error) if error.errno() == errno::ENOSPC => return Ok(()),
                result => result?,
            }
            blocks = self.shrink_limit()?.min_blocks;
        }
        Ok(())
    }
}

/// Removes empty AGs of a clean volume. Keeps the first `ags_left`, each of full length.
fn remove_ags(device: &dyn Device, ags_left: u32) -> Result<()> {
    let superblock = read_superblock(device)?;
    let geometry = &superblock.geometry;
    let mut free = 0;
    for ag in geometry.ags().skip(ags_left as usize) {
        free += free_blocks_of_empty(device, geometry, ag)?;
    }
    let mut sector = vec![0; geometry.sector_size as usize];
    device.read_at(0, &mut sector)?;
    let left = geometry.clone();
    left.resize(u64::from(ags_left) * u64::from(geometry.ag_blocks));
    if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(&mut sector) {
        raw.dblocks = U64::new(left.blocks());
        raw.agcount = U32::new(ags_left);
        raw.fdblocks = U64::new(raw.fdblocks.get().saturating_sub(free));
    }
    checksum::store(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector, Durability::Buffered)?;
    device.flush()?;
    write_copies(device, &left, &sector)
}

/// Returns the free blocks of an AG, which must be empty.
fn free_blocks_of_empty(device: &dyn Device, geometry: &Geometry, ag: AgNumber) -> Result<u64> {
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
        return Err(Error::refused(errno::EBUSY, "an allocation group to be removed is in use"));
    }
    Ok(free.into())
}
