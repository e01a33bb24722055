//! Writes the volume of a plan to a device.
//!
//! | part | subject |
//! |---|---|
//! | `wipe` | old contents of the device |
//! | `journal` | the log |
//! | `ag` | headers and btree roots of an AG |
//! | `inodes` | the first inodes: root directory and realtime inodes |
//! | `superblock` | the primary superblock and its copies |
//!
//! Old contents are wiped first; then everything except the primary superblock is written and flushed, then that.

mod ag;
mod inodes;
mod journal;
mod superblock;
mod wipe;

use block::{Device, Durability};
use format::Geometry;
use format::superblock::Superblock;

use crate::error::MkfsError;
use crate::plan::Plan;

/// The primary superblock of a plan, verified.
pub fn superblock(plan: &Plan) -> Result<Superblock, MkfsError> {
    Superblock::parse(&superblock::primary(plan)).map_err(MkfsError::Refused)
}

pub fn volume(device: &dyn Device, log: Option<&dyn Device>, plan: &Plan) -> Result<Geometry, MkfsError> {
    // Verify the superblock before anything is overwritten.
    let verified = superblock(plan)?;
    let primary = superblock::primary(plan);
    let is_zero = wipe::wipe(device, plan)?;
    journal::write(device, log, plan, &verified.geometry, is_zero)?;
    for number in (0..plan.ag_count).rev() {
        let offset = u64::from(number) * u64::from(plan.shape.ag_blocks) * u64::from(plan.shape.block_size);
        let mut head = ag::head(plan, &verified.geometry, number);
        if number == 0 {
            inodes::write(device, plan)?;
            // The sector of the primary superblock stays empty until everything else is stable.
            let rest = head.split_off(plan.shape.sector_size as usize);
            device.write_at(offset + u64::from(plan.shape.sector_size), &rest, Durability::Buffered)?;
        } else {
            device.write_at(offset, &head, Durability::Buffered)?;
        }
    }
    device.flush()?;
    device.write_at(0, &primary, Durability::Buffered)?;
    device.flush()?;
    Ok(verified.geometry)
}
