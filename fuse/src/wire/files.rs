//! Requests on open files.

use base::errno::EINVAL;
use fuse_abi::linux as abi;
use fuse_abi::linux::{
    fuse_copy_file_range_in, fuse_fallocate_in, fuse_fsync_in, fuse_lseek_in, fuse_lseek_out, fuse_open_in,
    fuse_read_in, fuse_release_in, fuse_write_in, fuse_write_out,
};

use super::directories::open_out;
use super::dispatch::Outcome;
use super::reply::Reply;
use super::request::Request;
use crate::operations::{ByteRange, Errno, FileHandle, Operations, Result, Seek, WriteFlags};

/// `O_DSYNC`, which is part of `O_SYNC`.
const O_DSYNC: u32 = 0o10_000;
/// The kernel handles the other values of `whence`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

pub fn open(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let arguments: fuse_open_in = request.body().take()?;
    let opened = ops.open(request.node(), arguments.flags as i32)?; // flags of `open(2)`
    reply.push(&open_out(opened));
    Ok(())
}

pub fn release(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    let arguments: fuse_release_in = request.body().take()?;
    ops.release(FileHandle(arguments.fh));
    Ok(())
}

pub fn read(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let arguments: fuse_read_in = request.body().take()?;
    reply.fill(arguments.size as usize, |buf| ops.read(FileHandle(arguments.fh), arguments.offset, buf))
}

/// If the write removes privileges, the attributes that the kernel has cached must be invalidated, also if the write
/// fails then: the kernel checks permissions by them.
pub fn write(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<Outcome> {
    let mut body = request.body();
    let arguments: fuse_write_in = body.take()?;
    let data = body.bytes(arguments.size)?;
    // After writeback of its cache the kernel sends FUSE_FSYNC if necessary.
    let from_cache = arguments.write_flags & abi::FUSE_WRITE_CACHE != 0;
    let how = WriteFlags { dsync: arguments.flags & O_DSYNC != 0 && !from_cache, from_cache };
    let invalidate =
        arguments.write_flags & abi::FUSE_WRITE_KILL_SUIDGID != 0 && ops.remove_privileges(request.node())?;
    let size = match ops.write(FileHandle(arguments.fh), arguments.offset, data, how) {
        Ok(size) => size,
        Err(error) if invalidate => return Ok(Outcome::ErrorAndInvalidate(error)),
        Err(error) => return Err(error),
    };
    reply.push(&fuse_write_out { size: size as u32, padding: 0 }); // at most the requested size
    Ok(if invalidate { Outcome::ReplyAndInvalidate } else { Outcome::Reply })
}

pub fn fsync(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    let arguments: fuse_fsync_in = request.body().take()?;
    ops.fsync(FileHandle(arguments.fh))
}

pub fn fallocate(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    let arguments: fuse_fallocate_in = request.body().take()?;
    let range = ByteRange { offset: arguments.offset, length: arguments.length };
    ops.fallocate(FileHandle(arguments.fh), range, arguments.mode)
}

pub fn lseek(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let arguments: fuse_lseek_in = request.body().take()?;
    let target = match arguments.whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => return Err(Errno(EINVAL)),
    };
    let offset = ops.lseek(FileHandle(arguments.fh), arguments.offset, target)?;
    reply.push(&fuse_lseek_out { offset });
    Ok(())
}

pub fn copy_file_range(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let arguments: fuse_copy_file_range_in = request.body().take()?;
    // The reply has 32 bits for the size. The caller sends another request for the rest.
    let length = arguments.len.min(1 << 30);
    let from = (FileHandle(arguments.fh_in), arguments.off_in);
    let size = ops.copy_file_range(from, (FileHandle(arguments.fh_out), arguments.off_out), length)?;
    reply.push(&fuse_write_out { size: size as u32, padding: 0 }); // at most the length
    Ok(())
}
