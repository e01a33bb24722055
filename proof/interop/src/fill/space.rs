//! Fragments the free space, so that forks need btrees.
//!
//! One file takes nearly all space; then single-block holes are punched into it. Later allocations get one block at a
//! time.

use std::fs::File;

use anyhow::Result;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::Fill;

/// Blocks for other allocations, and for the kernel's reservations.
const SLACK_BLOCKS: u64 = 700;

/// A volume with fragmented free space.
pub struct Fragmented {
    filler: File,
}

/// Fragments the free space of the volume.
pub fn fragment(fill: &mut Fill) -> Result<Fragmented> {
    let dir = fill.dir("space")?;
    let filler = fill.file(&dir.join("filler"))?;
    let total = take_all(fill, &filler)?;

    // For a directory, two attribute forks and a file, each with more extents than fit the inode.
    let need = fill.fork_extents * 3 / 2 * (fill.dir_block / fill.block).max(1)
        + fill.fork_extents * 6
        + SLACK_BLOCKS;
    // The kernel keeps up to a fifth contiguous in each AG, and would use that first.
    let kept_back = rustix::fs::statvfs(&fill.root)?.f_blocks / 5;
    let every = (total / fill.block / (need + kept_back)).max(2);
    let mut at = 0;
    while at < total {
        fallocate(&filler, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, fill.block)?;
        at += every * fill.block;
    }
    soak_up(fill, &fill.file(&dir.join("soak"))?, need)?;
    Ok(Fragmented { filler })
}

/// Takes the large free extents that remain, until `leave` blocks are free. One request for all of it: the kernel
/// serves a request longer than any free extent with the longest, and a shorter one with the nearest.
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

/// Allocates all available space, and returns the size.
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

impl Fragmented {
    /// Frees nearly all of it again. A file with many small unwritten extents and holes remains.
    pub fn free(&mut self, fill: &Fill) -> Result<()> {
        let keep = self.filler.metadata()?.len() / 24 / fill.block * fill.block;
        self.filler.set_len(keep)?;
        std::fs::remove_file(fill.root.join("space/soak"))?;
        Ok(())
    }
}
