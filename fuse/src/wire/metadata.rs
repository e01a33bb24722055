//! Requests on attributes, extended attributes and the file system.

use base::errno::{EINVAL, ERANGE};
use base::time::Time;
use fuse_abi::linux as abi;
use fuse_abi::linux::{
    fuse_getxattr_in, fuse_getxattr_out, fuse_ioctl_in, fuse_ioctl_out, fuse_setattr_in, fuse_setxattr_in,
};

use super::encode::{attributes_out, statfs_out, statx_out};
use super::reply::Reply;
use super::request::Request;
use crate::operations::{Errno, NewTime, Operations, Result, SetAttribute, SetAttributes};

/// Flags of `setxattr(2)`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

pub fn getattr(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    reply.push(&attributes_out(&ops.getattr(request.node())?));
    Ok(())
}

pub fn statx(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    reply.push(&statx_out(&ops.getattr(request.node())?));
    Ok(())
}

pub fn setattr(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let arguments: fuse_setattr_in = request.body().take()?;
    let is_set = |bit| arguments.valid & bit != 0;
    let time = |seconds: u64, nanos| Time { seconds: seconds as i64, nanos }; // `time_t`
    let new_time = |bit, now, time| match (is_set(bit), is_set(now)) {
        (false, _) => None,
        (true, true) => Some(NewTime::Now),
        (true, false) => Some(NewTime::At(time)),
    };
    let changes = SetAttributes {
        mode: is_set(abi::FATTR_MODE).then_some(arguments.mode),
        uid: is_set(abi::FATTR_UID).then_some(arguments.uid),
        gid: is_set(abi::FATTR_GID).then_some(arguments.gid),
        size: is_set(abi::FATTR_SIZE).then_some(arguments.size),
        accessed: new_time(
            abi::FATTR_ATIME,
            abi::FATTR_ATIME_NOW,
            time(arguments.atime, arguments.atimensec),
        ),
        modified: new_time(
            abi::FATTR_MTIME,
            abi::FATTR_MTIME_NOW,
            time(arguments.mtime, arguments.mtimensec),
        ),
        changed: is_set(abi::FATTR_CTIME).then_some(time(arguments.ctime, arguments.ctimensec)),
        remove_privileges: is_set(abi::FATTR_KILL_SUIDGID),
    };
    reply.push(&attributes_out(&ops.setattr(request.node(), &changes)?));
    Ok(())
}

pub fn setxattr(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_setxattr_in = body.take()?;
    let name = body.name()?;
    let mode = match arguments.flags {
        0 => SetAttribute::Any,
        XATTR_CREATE => SetAttribute::Create,
        XATTR_REPLACE => SetAttribute::Replace,
        _ => return Err(Errno(EINVAL)),
    };
    let remove_sgid = arguments.setxattr_flags & abi::FUSE_SETXATTR_ACL_KILL_SGID != 0;
    let value = body.bytes(arguments.size)?;
    ops.setxattr(request.caller(), request.node(), name, value, mode, remove_sgid)
}

pub fn getxattr(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_getxattr_in = body.take()?;
    push_value(reply, arguments.size, &ops.getxattr(request.node(), body.name()?)?)
}

pub fn listxattr(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let arguments: fuse_getxattr_in = request.body().take()?;
    let names = ops.listxattr(request.caller(), request.node())?;
    let names: Vec<u8> = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
    push_value(reply, arguments.size, &names)
}

/// Replies with a value, or with its length if the size of the buffer is 0.
fn push_value(reply: &mut Reply, size: u32, value: &[u8]) -> Result<()> {
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

pub fn removexattr(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    ops.removexattr(request.node(), request.body().name()?)
}

pub fn statfs(ops: &dyn Operations, _: &Request<'_>, reply: &mut Reply) -> Result<()> {
    reply.push(&statfs_out(&ops.statfs()?));
    Ok(())
}

pub fn fsyncdir(ops: &dyn Operations, request: &Request<'_>, _: &mut Reply) -> Result<()> {
    ops.fsyncdir(request.node())
}

pub fn syncfs(ops: &dyn Operations, _: &Request<'_>, _: &mut Reply) -> Result<()> {
    ops.syncfs()
}

pub fn ioctl(ops: &dyn Operations, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    let mut body = request.body();
    let arguments: fuse_ioctl_in = body.take()?;
    let argument = body.bytes(arguments.in_size)?;
    let result = ops.ioctl(request.caller(), request.node(), arguments.cmd, argument)?;
    let max = arguments.out_size as usize;
    reply.push(&fuse_ioctl_out::default());
    reply.push_bytes(result.get(..max.min(result.len())).unwrap_or_default());
    Ok(())
}
