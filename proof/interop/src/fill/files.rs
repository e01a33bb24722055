//! Holes, unwritten and shared extents, data forks of every format.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;
use block::fsxattr;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::Fill;

/// Contents of all lengths around a block, holes, unwritten extents, preallocation past the end, shared extents.
pub fn small(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("files")?;
    let block = fill.block;
    for len in [0, 1, 100, block - 1, block, block + 1, 3 * block + 7] {
        let bytes = fill.bytes(len as usize);
        fill.file(&dir.join(format!("len-{len}")))?.write_all_at(&bytes, 0)?;
    }

    let data = fill.bytes(block as usize);
    let sparse = fill.file(&dir.join("sparse"))?;
    for at in [0, 5, 6, 100, 1000] {
        sparse.write_all_at(&data, at * block)?;
    }
    sparse.set_len(1100 * block + 3)?;
    fill.file(&dir.join("all-hole"))?.set_len(100 << 20)?;
    // Larger than the limit for hashes in a manifest, with data at both ends.
    let huge = fill.file(&dir.join("huge"))?;
    huge.write_all_at(b"begin", 0)?;
    huge.write_all_at(b"end", (1 << 42) - 3)?;

    let unwritten = fill.file(&dir.join("unwritten"))?;
    fallocate(&unwritten, FallocateFlags::empty(), 0, 64 * block)?;
    unwritten.write_all_at(&data, 10 * block)?;
    unwritten.write_all_at(&data[..(block / 2) as usize], 20 * block + 1)?;
    fallocate(&unwritten, FallocateFlags::ZERO_RANGE, 10 * block + block / 4, block / 4)?;

    let past_end = fill.file(&dir.join("past-the-end"))?;
    past_end.write_all_at(&data, 0)?;
    fallocate(&past_end, FallocateFlags::KEEP_SIZE, 0, 32 * block)?;

    let bytes = fill.bytes((20 * block) as usize);
    let moved = fill.file(&dir.join("collapsed"))?;
    moved.write_all_at(&bytes, 0)?;
    fallocate(&moved, FallocateFlags::COLLAPSE_RANGE, 4 * block, 3 * block)?;
    fallocate(&moved, FallocateFlags::INSERT_RANGE, 8 * block, 2 * block)?;

    shared(fill, &dir, 40)
}

/// A data fork with a btree of one level, or of two if blocks are small; and a refcountbt of two levels.
pub fn large(fill: &mut Fill) -> Result<()> {
    let dir = fill.root.join("files");
    let count = if fill.block <= 1024 { 3000 } else { fill.fork_extents * 2 };
    let map = fill.file(&dir.join("btree-map"))?;
    for i in 0..count {
        // Every fourth extent unwritten, every other block a hole.
        if i % 4 == 3 {
            fallocate(&map, FallocateFlags::empty(), i * 2 * fill.block, fill.block)?;
        } else {
            let len = fill.block.min(4096) as usize;
            map.write_all_at(&fill.bytes(len), i * 2 * fill.block)?;
        }
    }
    map.sync_all()?;
    let blocks = match fill.block {
        ..=2048 => 1200,
        4096 => 800,
        _ => 100,
    };
    shared(fill, &dir, blocks)
}

/// A file that takes the larger free extents while the free space is fragmented.
pub fn tall(fill: &mut Fill) -> Result<()> {
    let file = fill.file(&fill.root.join("files/broken-up"))?;
    let step = 32 * fill.block;
    for at in (0..20).map(|i| i * step) {
        match fallocate(&file, FallocateFlags::empty(), at, step) {
            Ok(()) if u64::from(fsxattr::get(&file)?.nextents) <= fill.fork_extents + 8 => {}
            Ok(()) | Err(Errno::NOSPC) => break,
            Err(e) => return Err(e.into()),
        }
    }
    file.write_all_at(&fill.bytes(fill.block as usize * 3), 7 * fill.block)?;
    Ok(file.sync_all()?)
}

/// A file of `blocks` blocks with clones, in which some blocks are written again.
fn shared(fill: &mut Fill, dir: &Path, blocks: u64) -> Result<()> {
    let origin = fill.file(&dir.join(format!("shared-{blocks}")))?;
    let bytes = fill.bytes((blocks * fill.block) as usize);
    origin.write_all_at(&bytes, 0)?;
    for (name, every) in [("all", 0), ("second", 2), ("third", 3)] {
        let path = dir.join(format!("shared-{blocks}-{name}"));
        let clone = fill.file(&path)?;
        match rustix::fs::ioctl_ficlone(&clone, &origin) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => return Ok(std::fs::remove_file(path)?),
            Err(e) => return Err(e.into()),
        }
        if every > 0 {
            write_every(fill, &clone, blocks, every)?;
        }
    }
    // Two ranges of one file that share blocks.
    let half = blocks / 2 * fill.block;
    let twice = fill.file(&dir.join(format!("shared-{blocks}-twice")))?;
    let (mut from, mut to) = (0, half * 4);
    rustix::fs::copy_file_range(&origin, Some(&mut from), &twice, Some(&mut to), half as usize)?;
    Ok(())
}

fn write_every(fill: &mut Fill, file: &File, blocks: u64, every: u64) -> Result<()> {
    for i in (0..blocks).step_by(every as usize) {
        file.write_all_at(&fill.bytes(fill.block.min(512) as usize), i * fill.block)?;
    }
    Ok(file.sync_all()?)
}
