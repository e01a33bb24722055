//! Requests that concern what is known of files, their attributes, and the volume.

use base::errno::{EINVAL, ERANGE};
use base::time::Time;
use fuse_abi::linux as abi;
use fuse_abi::linux::{
    fuse_getxattr_in, fuse_getxattr_out, fuse_ioctl_in, fuse_ioctl_out, fuse_setattr_in, fuse_setxattr_in,
};

use super::dispatch::Asked;
use super::encode::{attributes_out, space_out, statx_out};
use super::reply::Reply;
use crate::operations::{Changes, Errno, Moment, Operations, Result, SetXattr};

/// Flags of `setxattr(2)`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

pub fn getattr<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    reply.push(&attributes_out(&ops.attributes(request.node())?));
    Ok(())
}

pub fn statx<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    reply.push(&statx_out(&ops.attributes(request.node())?));
    Ok(())
}

pub fn setattr<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_setattr_in = request.body().take()?;
    let given = |bit| asked.valid & bit != 0;
    let time = |seconds: u64, nanos| Time { seconds: seconds as i64, nanos }; // as `time_t` is
    let moment = |bit, now, time| match (given(bit), given(now)) {
        (false, _) => None,
        (true, true) => Some(Moment::Now),
        (true, false) => Some(Moment::At(time)),
    };
    let changes = Changes {
        mode: given(abi::FATTR_MODE).then_some(asked.mode),
        uid: given(abi::FATTR_UID).then_some(asked.uid),
        gid: given(abi::FATTR_GID).then_some(asked.gid),
        size: given(abi::FATTR_SIZE).then_some(asked.size),
        accessed: moment(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, time(asked.atime, asked.atimensec)),
        modified: moment(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, time(asked.mtime, asked.mtimensec)),
        changed: given(abi::FATTR_CTIME).then_some(time(asked.ctime, asked.ctimensec)),
        drop_set_id: given(abi::FATTR_KILL_SUIDGID),
    };
    reply.push(&attributes_out(&ops.change(request.node(), &changes)?));
    Ok(())
}

pub fn setxattr<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_setxattr_in = body.take()?;
    let name = body.name()?;
    let how = match asked.flags {
        0 => SetXattr::Any,
        XATTR_CREATE => SetXattr::Create,
        XATTR_REPLACE => SetXattr::Replace,
        _ => return Err(Errno(EINVAL)),
    };
    let drop_set_group_id = asked.setxattr_flags & abi::FUSE_SETXATTR_ACL_KILL_SGID != 0;
    let value = body.bytes(asked.size)?;
    ops.set_xattr(request.caller(), request.node(), name, value, how, drop_set_group_id)
}

pub fn getxattr<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_getxattr_in = body.take()?;
    sized(reply, asked.size, &ops.xattr(request.node(), body.name()?)?)
}

pub fn listxattr<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let asked: fuse_getxattr_in = request.body().take()?;
    let names = ops.list_xattrs(request.caller(), request.node())?;
    let names: Vec<u8> = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
    sized(reply, asked.size, &names)
}

/// A value for a buffer of some size; only its length for one of no size.
fn sized(reply: &mut Reply, size: u32, value: &[u8]) -> Result<()> {
    let length = value.len() as u32; // far below 4 GiB
    if size == 0 {
        reply.push(&fuse_getxattr_out { size: length, padding: 0 });
    } else if length > size {
        return Err(Errno(ERANGE));
    } else {
        reply.push_bytes(value);
    }
    Ok(())
}

pub fn removexattr<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    ops.remove_xattr(request.node(), request.body().name()?)
}

pub fn statfs<O: Operations + ?Sized>((ops, _, reply): Asked<'_, '_, O>) -> Result<()> {
    reply.push(&space_out(&ops.space()?));
    Ok(())
}

pub fn fsyncdir<O: Operations + ?Sized>((ops, request, _): Asked<'_, '_, O>) -> Result<()> {
    ops.sync_directory(request.node())
}

pub fn syncfs<O: Operations + ?Sized>((ops, _, _): Asked<'_, '_, O>) -> Result<()> {
    ops.sync_all()
}

pub fn ioctl<O: Operations + ?Sized>((ops, request, reply): Asked<'_, '_, O>) -> Result<()> {
    let mut body = request.body();
    let asked: fuse_ioctl_in = body.take()?;
    let argument = body.bytes(asked.in_size)?;
    let answer = ops.control(request.caller(), request.node(), asked.cmd, argument)?;
    let room = asked.out_size as usize;
    reply.push(&fuse_ioctl_out::default());
    reply.push_bytes(answer.get(..room.min(answer.len())).unwrap_or_default());
    Ok(())
}
