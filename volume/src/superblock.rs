//! The superblock of an open volume (the primary), and its copies: one in each AG except the first.
//!
//! A change of the volume's size, features or label is one transaction that changes the primary ([`lock_superblock`]).
//! Then the copies and the primary are written ([`Volume::write_superblocks`]).
//!
//! # Invariants
//! The copy in the last AG is written last. So it is out of date if a power cut interrupts writing the copies, and the
//! next open for changes writes all of them again ([`update_copies`]).

use std::sync::Arc;

use base::lock::Rank;
use base::{AgNumber, Daddr, errno};
use block::{Device, Durability};
use format::ondisk::OnDisk;
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, Superblock, SuperblockError, copy_of};
use format::{Geometry, checksum};
use journal::engine::{BufferId, DiskExtent, Transaction};

use crate::image::ImageError;
use crate::{Error, Result, Volume};

/// Maximum sector size in bytes.
const MAX_SECTOR: u64 = 32768;

/// Reads and verifies the primary. Refuses a device that is shorter than the volume.
pub(crate) fn read_superblock(device: &dyn Device) -> std::result::Result<Superblock, ImageError> {
    let mut sector = vec![0; device.size().min(MAX_SECTOR) as usize];
    device.read_at(0, &mut sector)?;
    let refuse = |reason| ImageError::Superblock { device: device.describe(), reason };
    if sector.len() < RawSuperblock::SIZE {
        return Err(refuse(SuperblockError::NotXfs));
    }
    let superblock = Superblock::parse(&sector).map_err(refuse)?;
    let (need, have) = (superblock.geometry.bytes(), device.size());
    if have < need {
        return Err(ImageError::Truncated { device: device.describe(), need, have });
    }
    Ok(superblock)
}

pub(crate) fn no_superblock() -> Error {
    Error::refused(errno::EIO, "the superblock cannot be read")
}

/// Locks the buffer of the primary.
pub(crate) fn lock_superblock(tx: &mut Transaction, geometry: &Geometry) -> Result<BufferId> {
    let at = DiskExtent { daddr: Daddr(0), bytes: geometry.sector_size };
    Ok(tx.read(at, Rank::Buffer, |bytes| match Superblock::parse(bytes) {
        Err(SuperblockError::Damaged(damage)) => Err(damage),
        _ => Ok(()),
    })?)
}

impl Volume {
    /// Writes a committed change of the superblock to the copies and to the primary's place.
    ///
    /// # Errors
    /// Errors of the device. The volume is then shut down, because memory and device may differ.
    pub(crate) fn write_superblocks(&self) -> Result<()> {
        self.or_shut_down(|| {
            self.log.force()?;
            let mut reader = self.reader()?;
            let id = lock_superblock(&mut reader.tx, &self.geometry)?;
            let buffer = Arc::clone(reader.tx.buffer(id));
            let primary = reader.tx.bytes(id).to_vec();
            drop(reader);
            write_copies(self.device(), &self.geometry, &primary)?;
            self.log.push_buffer(&buffer)?;
            Ok(self.device().flush()?)
        })
    }

    /// Runs a step that must follow a committed change: an error shuts the volume down.
    pub(crate) fn or_shut_down<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        step().inspect_err(|error| self.inode_cache.shared().target.shut_down(&error.to_string()))
    }
}

/// Writes all copies of the primary, and flushes them.
pub(crate) fn write_copies(device: &dyn Device, geometry: &Geometry, primary: &[u8]) -> Result<()> {
    let copy = copy_of(primary);
    let mut ags = geometry.ags().skip(1);
    let last = ags.next_back();
    for ag in ags {
        device.write_at(offset(geometry, ag), &copy, Durability::Buffered)?;
    }
    if let Some(ag) = last {
        device.flush()?;
        device.write_at(offset(geometry, ag), &copy, Durability::Buffered)?;
        device.flush()?;
    }
    Ok(())
}

/// Writes all copies again if the last one is out of date. If it is damaged, it is left to a repair.
pub(crate) fn update_copies(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let geometry = &superblock.geometry;
    let Some(last) = geometry.ags().skip(1).next_back() else { return Ok(()) };
    let mut bytes = vec![0; geometry.sector_size as usize];
    device.read_at(offset(geometry, last), &mut bytes)?;
    let is_sound = |copy: &&RawSuperblock| {
        copy.magicnum.get() == MAGIC && checksum::verify(RawSuperblock::NAME, &bytes, CRC_OFFSET).is_ok()
    };
    if RawSuperblock::view(&bytes).filter(is_sound).is_none_or(|copy| superblock.raw.is_copied_by(copy)) {
        return Ok(());
    }
    device.read_at(0, &mut bytes)?;
    write_copies(device, geometry, &bytes)
}

fn offset(geometry: &Geometry, ag: AgNumber) -> u64 {
    geometry.ag_header_daddr(ag, 0).get() << 9
}
