//! Requests on names: lookup, forget, create, link, remove, rename, readdir.

use base::errno::{EINVAL, ENOENT};
use fuse_abi::linux::{
    FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, fuse_batch_forget_in, fuse_create_in, fuse_dirent, fuse_entry_out,
    fuse_forget_one, fuse_link_in, fuse_mkdir_in, fuse_mknod_in, fuse_open_out, fuse_read_in, fuse_rename_in,
    fuse_rename2_in,
};
use zerocopy::{Immutable, IntoBytes};

use super::dispatch::Outcome;
use super::encode::{decode_device, entry_out, no_entry_out};
use super::reply::Reply;
use super::request::Request;
use crate::operations::{DirEntry, Errno, IsKnown, NewInode, NodeId, Opened, Operations, Rename, Result};

const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;

/// Flags of `renameat2(2)`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const RENAME_WHITEOUT_NOREPLACE: u32 = RENAME_WHITEOUT | RENAME_NOREPLACE;

pub fn lookup(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    match ops.lookup(request.node(), request.body().name()?) {
        Ok(entry) => reply.push(&entry_out(&entry)),
        Err(Errno(ENOENT)) => reply.push(&no_entry_out()),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// How many lookups are forgotten does not matter: the kernel is asked whether it knows the inode again.
pub fn forget(ops: &dyn Operations, request: &Request<'_>, is_known: &IsKnown<'_>) -> Outcome {
    ops.forget(request.node(), is_known);
    Outcome::NoReply
}

pub fn batch_forget(ops: &dyn Operations, request: &Request<'_>, is_known: &IsKnown<'_>) -> Outcome {
    let mut body = request.body();
    let count = body.take::<fuse_batch_forget_in>().map_or(0, |arguments| arguments.count);
    for _ in 0..count {
        let Ok(one) = body.take::<fuse_forget_one>() else { break };
        ops.forget(NodeId(one.nodeid), is_known);
    }
    Outcome::NoReply
}

pub fn mknod(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_mknod_in = body.take()?;
    let new = NewInode {
        mode: arguments.mode,
        umask: arguments.umask,
        device: decode_device(arguments.rdev),
        target: b"",
    };
    create_inode(ops, request, reply, body.name()?, &new)
}

pub fn mkdir(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_mkdir_in = body.take()?;
    let mode = arguments.mode & 0o7777 | S_IFDIR;
    let new = NewInode { mode, umask: arguments.umask, device: (0, 0), target: b"" };
    create_inode(ops, request, reply, body.name()?, &new)
}

pub fn symlink(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let name = body.name()?;
    let new = NewInode { mode: S_IFLNK | 0o777, umask: 0, device: (0, 0), target: body.name()? };
    create_inode(ops, request, reply, name, &new)
}

fn create_inode(
    ops: &dyn Operations,
    request: &Request<'_>,
    reply: &mut Reply,
    name: &[u8],
    new: &NewInode<'_>,
) -> Result<()> {
    let entry = ops.mknod(request.caller(), request.node(), name, new)?;
    reply.push(&entry_out(&entry));
    Ok(())
}

pub fn create(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    create_open(ops, request, reply, true)
}

/// The name in the request is only informative.
pub fn tmpfile(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    create_open(ops, request, reply, false)
}

fn create_open(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply, named: bool) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_create_in = body.take()?;
    let name = body.name()?;
    let new = NewInode { mode: arguments.mode, umask: arguments.umask, device: (0, 0), target: b"" };
    let flags = arguments.flags as i32; // flags of `open(2)`
    let (entry, opened) = ops.create(request.caller(), request.node(), named.then_some(name), &new, flags)?;
    reply.push(&entry_out(&entry));
    reply.push(&open_out(opened));
    Ok(())
}

/// Reply with a file handle. The kernel's page cache stays valid, as no one else writes the file.
pub fn open_out(opened: Opened) -> fuse_open_out {
    let direct = if opened.direct_io { FOPEN_DIRECT_IO } else { 0 };
    fuse_open_out { fh: opened.handle.0, open_flags: FOPEN_KEEP_CACHE | direct, backing_id: 0 }
}

pub fn link(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_link_in = body.take()?;
    let entry = ops.link(NodeId(arguments.oldnodeid), request.node(), body.name()?)?;
    reply.push(&entry_out(&entry));
    Ok(())
}

pub fn unlink(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    ops.unlink(request.node(), request.body().name()?)
}

pub fn rmdir(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    ops.rmdir(request.node(), request.body().name()?)
}

pub fn rename(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_rename_in = body.take()?;
    let (from, to) = (body.name()?, body.name()?);
    ops.rename((request.node(), from), (NodeId(arguments.newdir), to), Rename::Replace)
}

pub fn rename2(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_rename2_in = body.take()?;
    let mode = match arguments.flags {
        0 => Rename::Replace,
        RENAME_NOREPLACE => Rename::NoReplace,
        RENAME_EXCHANGE => Rename::Exchange,
        // The kernel has checked that the new name does not exist.
        RENAME_WHITEOUT | RENAME_WHITEOUT_NOREPLACE => Rename::Whiteout,
        _ => return Err(Errno(EINVAL)),
    };
    let (from, to) = (body.name()?, body.name()?);
    ops.rename((request.node(), from), (NodeId(arguments.newdir), to), mode)
}

pub fn readlink(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    reply.push_bytes(&ops.readlink(request.node())?);
    Ok(())
}

/// Encodes as many entries as fit into the buffer of the kernel.
pub fn readdir(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply, plus: bool) -> Result<()> {
    let arguments: fuse_read_in = request.body().take()?;
    let max = (arguments.size as usize).min(super::init::MAX_TRANSFER as usize);
    ops.readdir(request.node(), arguments.offset, plus, &mut |entry| {
        let head = if plus { size_of::<fuse_entry_out>() } else { 0 } + size_of::<DirentHeader>();
        if reply.len() + (head + entry.name.len()).next_multiple_of(8) > max {
            return false;
        }
        if plus {
            reply.push(&entry.entry.as_ref().map_or_else(fuse_entry_out::default, entry_out));
        }
        push_entry(reply, entry);
        true
    })
}

/// [`fuse_dirent`] without the name, as the type of the crate cannot be converted to bytes.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct DirentHeader {
    ino: u64,
    off: u64,
    namelen: u32,
    file_type: u32,
}

const _: () = assert!(size_of::<DirentHeader>() == size_of::<fuse_dirent>());

fn push_entry(reply: &mut Reply, entry: &DirEntry<'_>) {
    reply.push(&DirentHeader {
        ino: entry.ino,
        off: entry.next_offset,
        namelen: entry.name.len() as u32, // at most 255
        file_type: entry.file_type >> 12,
    });
    reply.push_bytes(entry.name);
    reply.pad();
}
