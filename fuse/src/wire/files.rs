//! Requests that concern open files.

use base::errno::EINVAL;
use fuse_abi::linux as abi;
use fuse_abi::linux::{
    fuse_copy_file_range_in, fuse_fallocate_in, fuse_fsync_in, fuse_lseek_in, fuse_lseek_out, fuse_open_in,
    fuse_read_in, fuse_release_in, fuse_write_in, fuse_write_out,
};

use super::dispatch::{Answer, Asked};
use super::names::open_out;
use crate::operations::{Errno, Open, Operations, Range, Result, Seek, WriteHow};

/// `O_DSYNC`, which `O_SYNC` contains.
const O_DSYNC: u32 = 0o10_000;
/// `SEEK_DATA` and `SEEK_HOLE`: the kernel knows the other places itself.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

pub fn open<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_open_in = request.body().take()?;
    let opened = ops.open(request.node(), asked.flags as i32)?; // as `open` has them
    reply.push(&open_out(opened));
    Ok(())
}

pub fn release<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_release_in = request.body().take()?;
    ops.release(Open(asked.fh));
    Ok(())
}

pub fn read<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_read_in = request.body().take()?;
    reply.fill(asked.size as usize, |buf| ops.read(Open(asked.fh), asked.offset, buf))
}

/// What the kernel knows of the file it keeps, and by that it lets programs have rights: it must know where they went.
pub fn write<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<Answer> {
    let mut body = request.body();
    let asked: fuse_write_in = body.take()?;
    let how = WriteHow {
        // What the kernel writes of its own accord, it asks to sync where that is needed.
        stable: asked.flags & O_DSYNC != 0 && asked.write_flags & abi::FUSE_WRITE_CACHE == 0,
    };
    let fewer =
        asked.write_flags & abi::FUSE_WRITE_KILL_SUIDGID != 0 && ops.remove_privileges(request.node())?;
    let size = ops.write(Open(asked.fh), asked.offset, body.bytes(asked.size)?, how)?;
    reply.push(&fuse_write_out { size: size as u32, padding: 0 }); // at most what was asked for
    Ok(if fewer { Answer::Outdating } else { Answer::Reply })
}

pub fn fsync<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_fsync_in = request.body().take()?;
    ops.sync_file(Open(asked.fh))
}

pub fn fallocate<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_fallocate_in = request.body().take()?;
    let range = Range { offset: asked.offset, length: asked.length };
    ops.allocate(Open(asked.fh), range, asked.mode)
}

pub fn lseek<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_lseek_in = request.body().take()?;
    let what = match asked.whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => return Err(Errno(EINVAL)),
    };
    let offset = ops.seek(Open(asked.fh), asked.offset, what)?;
    reply.push(&fuse_lseek_out { offset });
    Ok(())
}

pub fn copy<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_copy_file_range_in = request.body().take()?;
    // What was copied is told in 32 bits, and what is not copied at once is asked for again.
    let length = asked.len.min(1 << 30);
    let from = (Open(asked.fh_in), asked.off_in);
    let size = ops.copy(from, (Open(asked.fh_out), asked.off_out), length)?;
    reply.push(&fuse_write_out { size: size as u32, padding: 0 }); // at most the length
    Ok(())
}
