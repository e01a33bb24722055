//! Requests that concern names.

use base::errno::{EINVAL, ENOENT};
use fuse_abi::linux::{
    FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, fuse_batch_forget_in, fuse_create_in, fuse_dirent, fuse_entry_out,
    fuse_forget_in, fuse_forget_one, fuse_link_in, fuse_mkdir_in, fuse_mknod_in, fuse_open_out, fuse_read_in,
    fuse_rename_in, fuse_rename2_in,
};
use zerocopy::{Immutable, IntoBytes};

use super::dispatch::{Answer, Asked};
use super::encode::{entry_out, no_entry_out, unpacked};
use super::reply::Reply;
use super::request::Request;
use crate::operations::{Errno, Found, Listed, Make, Node, Opened, Operations, Rename, Result};

const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;

/// Flags of `renameat2(2)`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

pub fn lookup<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    match ops.lookup(request.node(), request.body().name()?) {
        Ok(found) => reply.push(&entry_out(&found)),
        Err(Errno(ENOENT)) => reply.push(&no_entry_out()),
        Err(error) => return Err(error),
    }
    Ok(())
}

pub fn forget<O: Operations + ?Sized>(ops: &O, request: &Request<'_>) -> Answer {
    if let Ok(asked) = request.body().take::<fuse_forget_in>() {
        ops.forget(request.node(), asked.nlookup);
    }
    Answer::None
}

pub fn forget_all<O: Operations + ?Sized>(ops: &O, request: &Request<'_>) -> Answer {
    let mut body = request.body();
    let count = body.take::<fuse_batch_forget_in>().map_or(0, |asked| asked.count);
    for _ in 0..count {
        let Ok(one) = body.take::<fuse_forget_one>() else { break };
        ops.forget(Node(one.nodeid), one.nlookup);
    }
    Answer::None
}

pub fn mknod<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_mknod_in = body.take()?;
    let make = Make { mode: asked.mode, umask: asked.umask, device: unpacked(asked.rdev), target: b"" };
    made((ops, request, reply), body.name()?, &make)
}

pub fn mkdir<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_mkdir_in = body.take()?;
    let mode = asked.mode & 0o7777 | S_IFDIR;
    let make = Make { mode, umask: asked.umask, device: (0, 0), target: b"" };
    made((ops, request, reply), body.name()?, &make)
}

pub fn symlink<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let name = body.name()?;
    let make = Make { mode: S_IFLNK | 0o777, umask: 0, device: (0, 0), target: body.name()? };
    made((ops, request, reply), name, &make)
}

fn made<O: Operations + ?Sized>(
    (ops, request, reply): Asked<'_, '_, O>,
    name: &[u8],
    make: &Make<'_>,
) -> Result<()> {
    let found = ops.make(request.caller(), request.node(), name, make)?;
    reply.push(&entry_out(&found));
    Ok(())
}

pub fn create<O: Operations + ?Sized>(asked: Asked<'_, '_, O>) -> Result<()> {
    open_new(asked, true)
}

/// The name that comes with it is only for people to read.
pub fn tmpfile<O: Operations + ?Sized>(asked: Asked<'_, '_, O>) -> Result<()> {
    open_new(asked, false)
}

fn open_new<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>, named: bool) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_create_in = body.take()?;
    let name = body.name()?;
    let make = Make { mode: asked.mode, umask: asked.umask, device: (0, 0), target: b"" };
    let flags = asked.flags as i32; // as `open` has them
    let (found, opened) =
        ops.create(request.caller(), request.node(), named.then_some(name), &make, flags)?;
    reply.push(&entry_out(&found));
    reply.push(&open_out(opened));
    Ok(())
}

/// An open file. What the kernel has of its contents stays good: nobody else writes them.
pub fn open_out(opened: Opened) -> fuse_open_out {
    let direct = if opened.direct { FOPEN_DIRECT_IO } else { 0 };
    fuse_open_out { fh: opened.open.0, open_flags: FOPEN_KEEP_CACHE | direct, backing_id: 0 }
}

pub fn link<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_link_in = body.take()?;
    let found = ops.link(Node(asked.oldnodeid), request.node(), body.name()?)?;
    reply.push(&entry_out(&found));
    Ok(())
}

pub fn unlink<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    ops.unlink(request.node(), request.body().name()?)
}

pub fn rmdir<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    ops.rmdir(request.node(), request.body().name()?)
}

pub fn rename<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_rename_in = body.take()?;
    let (from, to) = (body.name()?, body.name()?);
    ops.rename((request.node(), from), (Node(asked.newdir), to), Rename::Replace)
}

pub fn rename2<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_rename2_in = body.take()?;
    let how = match asked.flags {
        0 => Rename::Replace,
        RENAME_NOREPLACE => Rename::NoReplace,
        RENAME_EXCHANGE => Rename::Exchange,
        RENAME_WHITEOUT => Rename::Whiteout,
        _ => return Err(Errno(EINVAL)),
    };
    let (from, to) = (body.name()?, body.name()?);
    ops.rename((request.node(), from), (Node(asked.newdir), to), how)
}

pub fn read_link<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    reply.push_bytes(&ops.read_link(request.node())?);
    Ok(())
}

/// Entries, as many as there is room for in what the kernel set aside.
pub fn list<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>, plus: bool) -> Result<()> {
    let asked: fuse_read_in = request.body().take()?;
    let most = (asked.size as usize).min(super::init::MOST as usize);
    ops.list(request.node(), asked.offset, plus, &mut |entry| {
        let head = if plus { size_of::<fuse_entry_out>() } else { 0 } + size_of::<Head>();
        if reply.len() + (head + entry.name.len()).next_multiple_of(8) > most {
            return false;
        }
        if plus {
            reply.push(&entry.found.map_or_else(fuse_entry_out::default, |found: Found| entry_out(&found)));
        }
        push_entry(reply, entry);
        true
    })
}

/// What stands in front of an entry's name: [`fuse_dirent`], whose crate has no bytes of it because the name follows.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Head {
    ino: u64,
    off: u64,
    namelen: u32,
    kind: u32,
}

const _: () = assert!(size_of::<Head>() == size_of::<fuse_dirent>());

fn push_entry(reply: &mut Reply, entry: &Listed<'_>) {
    reply.push(&Head {
        ino: entry.ino,
        off: entry.next,
        namelen: entry.name.len() as u32, // at most 255
        kind: entry.kind >> 12,
    });
    reply.push_bytes(entry.name);
    reply.pad();
}
