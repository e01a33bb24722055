//! The copies of the superblock, one in each AG but the first.
//!
//! They follow the primary after each change of the volume's size, features or names, the last one last. So a power cut
//! before that leaves the last one behind, and the next opening for changes brings all of them up to date.

use base::AgNumber;
use block::{Device, Durability};
use format::ondisk::OnDisk;
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, Superblock, copy_of};
use format::{Geometry, checksum};

use crate::Result;

/// Writes all copies of the primary whose sector this is, and makes them stable.
pub(crate) fn write(device: &dyn Device, geometry: &Geometry, primary: &[u8]) -> Result<()> {
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
pub(crate) fn bring_up(device: &dyn Device, superblock: &Superblock) -> Result<()> {
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
    write(device, geometry, &bytes)
}

fn place(geometry: &Geometry, ag: AgNumber) -> u64 {
    geometry.ag_header_daddr(ag, 0).get() << 9
}
