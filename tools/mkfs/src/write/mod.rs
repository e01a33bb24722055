//! From a plan to bytes on a device.
//!
//! | part | subject |
//! |---|---|
//! | `wipe` | what the device held before |
//! | `journal` | the log: zeros, and one record that says it is clean |
//! | `group` | the headers of an AG and the roots of its trees |
//! | `inodes` | the first chunk: root directory and realtime inodes |
//! | `superblock` | the first one and its copies |
//!
//! Order: what was there goes first, then everything but the first superblock is written and flushed, then that.

mod group;
mod inodes;
mod journal;
mod superblock;
mod wipe;

use block::{Device, Durability};
use format::Geometry;
use format::superblock::Superblock;

use crate::error::MkfsError;
use crate::plan::Plan;

/// The first superblock of a plan, verified as any reader would.
pub fn superblock(plan: &Plan) -> Result<Superblock, MkfsError> {
    Superblock::parse(&superblock::first(plan)).map_err(MkfsError::Refused)
}

pub fn volume(device: &dyn Device, log: Option<&dyn Device>, plan: &Plan) -> Result<Geometry, MkfsError> {
    // Verified before anything is overwritten: the geometry is also what callers want to know.
    let verified = superblock(plan)?;
    let first = superblock::first(plan);
    let is_zero = wipe::wipe(device, plan)?;
    journal::write(device, log, plan, &verified.geometry, is_zero)?;
    for ag in (0..plan.ag_count).rev() {
        let offset = u64::from(ag) * u64::from(plan.shape.ag_blocks) * u64::from(plan.shape.block_size);
        let mut head = group::head(plan, &verified.geometry, ag);
        if ag == 0 {
            inodes::write(device, plan)?;
            // The sector of the superblock stays empty until all else is stable.
            let rest = head.split_off(plan.shape.sector_size as usize);
            device.write_at(offset + u64::from(plan.shape.sector_size), &rest, Durability::Buffered)?;
        } else {
            device.write_at(offset, &head, Durability::Buffered)?;
        }
    }
    device.flush()?;
    device.write_at(0, &first, Durability::Buffered)?;
    device.flush()?;
    Ok(verified.geometry)
}
