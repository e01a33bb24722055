//! The superblock of an open volume, and its copies, one in each AG but the first.
//!
//! A change of the volume's size, features or label is one transaction over the primary ([`lock_superblock`]), which
//! then goes home, and the copies with it ([`Volume::settle_superblock`]).
//!
//! # Invariants
//! The copies follow the primary, the last one last. So a power cut before that leaves the last one behind, and the
//! next opening for changes brings all of them up to date ([`bring_up_copies`]).

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

/// The largest sector that a superblock may fill.
const LARGEST_SECTOR: u64 = 32768;

/// Reads and verifies the primary superblock, and that the device holds all blocks of the volume.
pub(crate) fn read_superblock(device: &dyn Device) -> std::result::Result<Superblock, ImageError> {
    let mut sector = vec![0; device.size().min(LARGEST_SECTOR) as usize];
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

/// Locks the primary.
pub(crate) fn lock_superblock(tx: &mut Transaction, geometry: &Geometry) -> Result<BufferId> {
    let at = DiskExtent { daddr: Daddr(0), bytes: geometry.sector_size };
    Ok(tx.read(at, Rank::Buffer, |bytes| match Superblock::parse(bytes) {
        Err(SuperblockError::Damaged(damage)) => Err(damage),
        _ => Ok(()),
    })?)
}

impl Volume {
    /// The superblock's change is in the log: brings it home, and into the copies.
    ///
    /// # Errors
    /// What the device meets. The volume is then shut down: what it is and what the device says of it may differ.
    pub(crate) fn settle_superblock(&self) -> Result<()> {
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

    /// Does what must follow a change that is in the log already.
    pub(crate) fn or_shut_down<T>(&self, follow: impl FnOnce() -> Result<T>) -> Result<T> {
        follow().inspect_err(|error| self.inode_cache.shared().target.shut_down(&error.to_string()))
    }
}

/// Writes all copies of the primary whose sector this is, and makes them stable.
pub(crate) fn write_copies(device: &dyn Device, geometry: &Geometry, primary: &[u8]) -> Result<()> {
    let copy = copy_of(primary);
    let mut ags = geometry.ags().skip(1);
    let last = ags.next_back();
    for ag in ags {
        device.write_at(place(geometry, ag), &copy, Durability::Buffered)?;
    }
    if let Some(ag) = last {
        device.flush()?;
        device.write_at(place(geometry, ag), &copy, Durability::Buffered)?;
        device.flush()?;
    }
    Ok(())
}

/// Brings the copies up to date where the last one says that they are not. A damaged one is left to a repair.
pub(crate) fn bring_up_copies(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let geometry = &superblock.geometry;
    let Some(last) = geometry.ags().skip(1).next_back() else { return Ok(()) };
    let mut bytes = vec![0; geometry.sector_size as usize];
    device.read_at(place(geometry, last), &mut bytes)?;
    let is_sound = |copy: &&RawSuperblock| {
        copy.magicnum.get() == MAGIC && checksum::verify(RawSuperblock::NAME, &bytes, CRC_OFFSET).is_ok()
    };
    if RawSuperblock::view(&bytes).filter(is_sound).is_none_or(|copy| superblock.raw.is_copied_by(copy)) {
        return Ok(());
    }
    device.read_at(0, &mut bytes)?;
    write_copies(device, geometry, &bytes)
}

fn place(geometry: &Geometry, ag: AgNumber) -> u64 {
    geometry.ag_header_daddr(ag, 0).get() << 9
}
