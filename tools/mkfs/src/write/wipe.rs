//! What the device held before: superblocks and signatures that somebody might still find.

use block::Device;
use format::superblock::Superblock;

use crate::error::MkfsError;
use crate::plan::Plan;

/// Bytes at both ends of the device where signatures of others lie.
const ENDS: u64 = 128 << 10;
/// Copies of an old superblock that are wiped at most.
const OLD_AGS_MAX: u32 = 1 << 20;

/// Wipes; returns whether the whole device now reads as zeros.
pub fn wipe(device: &dyn Device, plan: &Plan) -> Result<bool, MkfsError> {
    if plan.discard && device.discard(0, device.size())? {
        return Ok(true);
    }
    wipe_old_superblocks(device)?;
    let size = device.size();
    let end = ENDS.min(size);
    device.zero(0, end)?;
    device.zero(size - end, end)?;
    Ok(false)
}

/// The copies in the AGs of an XFS that was here: repair tools search for them.
fn wipe_old_superblocks(device: &dyn Device) -> Result<(), MkfsError> {
    let mut sector = vec![0; 512.min(device.size()) as usize];
    // What cannot be read holds nothing that a tool could find.
    if device.read_at(0, &mut sector).is_err() {
        return Ok(());
    }
    let Ok(old) = Superblock::parse_unchecked(&sector) else { return Ok(()) };
    let geometry = old.geometry;
    for ag in geometry.ags().skip(1).take(OLD_AGS_MAX as usize) {
        let offset = geometry.ag_block_offset(ag, base::AgBlock(0));
        let length = u64::from(geometry.sector_size);
        if offset.checked_add(length).is_none_or(|end| end > device.size()) {
            break;
        }
        device.zero(offset, length)?;
    }
    Ok(())
}
