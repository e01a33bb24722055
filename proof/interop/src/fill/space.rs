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
const SLACK_BLOCKS: u64 = 900;

/// A volume with broken-up free space.
pub struct BrokenUp {
    filler: File,
}

/// Breaks up the free space of the whole volume.
pub fn break_up(fill: &mut Fill) -> Result<BrokenUp> {
    let dir = fill.dir("space")?;
    let filler = fill.file(&dir.join("filler"))?;
    let total = take_all(fill, &filler)?;

    // A directory and two attribute forks of more extents than fit the inode, and a file of many.
    let dir_blocks = fill.fork_extents * 3 / 2 * (fill.dir_block / fill.block).max(1);
    let holes = dir_blocks + fill.fork_extents * 4 + SLACK_BLOCKS + reservation(fill);
    let every = (total / fill.block / holes.max(1)).max(2);
    let mut at = 0;
    while at < total {
        fallocate(&filler, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, fill.block)?;
        at += every * fill.block;
    }
    // The kernel keeps some contiguous space back for its trees, and would use that first: take it with a file that
    // asks for large extents.
    let soak = fill.file(&dir.join("soak"))?;
    let want = reservation(fill) * fill.block;
    match fallocate(&soak, FallocateFlags::KEEP_SIZE, 0, want) {
        Ok(()) | Err(Errno::NOSPC) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(BrokenUp { filler })
}

/// About how many blocks the kernel keeps back for its trees: under two in a hundred.
fn reservation(fill: &Fill) -> u64 {
    rustix::fs::statvfs(&fill.root).map_or(0, |s| s.f_blocks / 64)
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
