//! Breaks up the free space, so that forks and trees grow tall.
//!
//! One file takes nearly all space and is then punched full of single-block holes. What is allocated afterwards gets
//! one block here and one there.

use std::fs::File;

use anyhow::Result;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::Fill;

/// Blocks left for what the parts do besides growing forks, and for the kernel's reservations.
const SLACK_BLOCKS: u64 = 700;

/// A volume with broken-up free space.
pub struct BrokenUp {
    filler: File,
}

/// Breaks up the free space of the whole volume.
pub fn break_up(fill: &mut Fill) -> Result<BrokenUp> {
    let dir = fill.dir("space")?;
    let filler = fill.file(&dir.join("filler"))?;
    let total = take_all(fill, &filler)?;

    // A directory, two attribute forks and a file of more extents than fit the inode.
    let need = fill.fork_extents * 3 / 2 * (fill.dir_block / fill.block).max(1)
        + fill.fork_extents * 6
        + SLACK_BLOCKS;
    // The kernel keeps up to a fifth back, in one piece in each group, and would use that first.
    let kept_back = rustix::fs::statvfs(&fill.root)?.f_blocks / 5;
    let every = (total / fill.block / (need + kept_back)).max(2);
    let mut at = 0;
    while at < total {
        fallocate(&filler, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, fill.block)?;
        at += every * fill.block;
    }
    soak_up(fill, &fill.file(&dir.join("soak"))?, need)?;
    Ok(BrokenUp { filler })
}

/// Takes the large pieces that are left, until `leave` blocks are free. All in one request, because the kernel serves a
/// request that is longer than any piece with the longest, and a shorter one with the nearest.
fn soak_up(fill: &Fill, soak: &File, leave: u64) -> Result<()> {
    let free =
        || Ok::<_, Errno>(rustix::fs::statvfs(&fill.root)?.f_bavail.saturating_sub(leave) * fill.block);
    let (mut at, mut step) = (0, free()?);
    while step >= fill.block {
        match fallocate(soak, FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(Errno::NOSPC) => step = step / 2 / fill.block * fill.block,
            Err(e) => return Err(e.into()),
        }
        step = step.min(free()?);
    }
    Ok(())
}

/// Allocates all it can get, and returns the size.
fn take_all(fill: &Fill, filler: &File) -> Result<u64> {
    let free = rustix::fs::statvfs(&fill.root)?.f_bavail * fill.block;
    let mut size = 0;
    let mut step = free.next_power_of_two() / 2;
    while step >= fill.block {
        match fallocate(filler, FallocateFlags::empty(), size, step) {
            Ok(()) => size += step,
            Err(Errno::NOSPC) => step /= 2,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(size)
}

impl BrokenUp {
    /// Frees nearly all of it again. What stays is a file of many small unwritten extents, and the holes between them.
    pub fn give_back(&mut self, fill: &Fill) -> Result<()> {
        let keep = self.filler.metadata()?.len() / 24 / fill.block * fill.block;
        self.filler.set_len(keep)?;
        std::fs::remove_file(fill.root.join("space/soak"))?;
        Ok(())
    }
}
