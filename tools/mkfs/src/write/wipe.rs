//! Removes old superblocks and signatures from the device.

use block::Device;
use format::superblock::Superblock;

use crate::error::MkfsError;
use crate::plan::Plan;

/// Bytes at the start and at the end of the device that may contain signatures.
const ENDS: u64 = 128 << 10;
/// Maximum number of old superblocks to wipe.
const MAX_OLD_AGS: u32 = 1 << 20;

/// Wipes old contents. Returns whether the whole device reads as zeros.
pub fn wipe(device: &dyn Device, plan: &Plan) -> Result<bool, MkfsError> {
    if plan.discard && device.discard(0, device.size())? {
        return Ok(true);
    }
    wipe_old_superblocks(device)?;
    let size = device.size();
    let length = ENDS.min(size);
    device.zero(0, length)?;
    device.zero(size - length, length)?;
    Ok(false)
}

/// Wipes the superblock copies of an old XFS volume, for which repair tools search.
fn wipe_old_superblocks(device: &dyn Device) -> Result<(), MkfsError> {
    let mut sector = vec![0; 512.min(device.size()) as usize];
    // Nobody can find a superblock in an unreadable sector.
    if device.read_at(0, &mut sector).is_err() {
        return Ok(());
    }
    let Ok(old) = Superblock::parse_unchecked(&sector) else { return Ok(()) };
    let geometry = old.geometry;
    for ag in geometry.ags().skip(1).take(MAX_OLD_AGS as usize) {
        let offset = geometry.ag_block_offset(ag, base::AgBlock(0));
        let length = u64::from(geometry.sector_size);
        if offset.checked_add(length).is_none_or(|end| end > device.size()) {
            break;
        }
        device.zero(offset, length)?;
    }
    Ok(())
}
