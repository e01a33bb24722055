//! Dispatches requests by opcode to [`Operations`].

use base::errno::EINVAL;
use fuse_abi::linux::fuse_opcode;

use super::reply::Reply;
use super::request::Request;
use super::{directories, files, metadata};
use crate::operations::{ENOSYS, EROFS, Errno, IsKnown, Operations, Result};

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send the reply.
    Reply,
    /// Send the reply, after the notification that the attributes of the node are stale.
    ReplyAndInvalidate,
    /// Send the error, after that notification: a part of the request has changed the attributes.
    ErrorAndInvalidate(Errno),
    /// The request has no reply.
    NoReply,
    /// `FUSE_DESTROY`: no reply, and no further requests.
    Destroy,
}

/// Processes a request and encodes its reply. `is_known` asks the kernel whether it knows an inode.
///
/// # Errors
/// The errno to reply with.
pub fn dispatch(
    ops: &dyn Operations,
    request: &Request<'_>,
    reply: &mut Reply,
    is_known: &IsKnown<'_>,
) -> Result<Outcome> {
    use fuse_opcode as op;
    if !request.is_complete() {
        return Err(Errno(EINVAL));
    }
    let Some(opcode) = request.opcode() else { return Err(ENOSYS) };
    if modifies(opcode) && ops.is_read_only() {
        return Err(EROFS);
    }
    match opcode {
        op::FUSE_FORGET => return Ok(directories::forget(ops, request, is_known)),
        op::FUSE_BATCH_FORGET => return Ok(directories::batch_forget(ops, request, is_known)),
        op::FUSE_DESTROY => return Ok(Outcome::Destroy),
        op::FUSE_LOOKUP => directories::lookup(ops, request, reply),
        op::FUSE_MKNOD => directories::mknod(ops, request, reply),
        op::FUSE_MKDIR => directories::mkdir(ops, request, reply),
        op::FUSE_SYMLINK => directories::symlink(ops, request, reply),
        op::FUSE_LINK => directories::link(ops, request, reply),
        op::FUSE_UNLINK => directories::unlink(ops, request, reply),
        op::FUSE_RMDIR => directories::rmdir(ops, request, reply),
        op::FUSE_RENAME => directories::rename(ops, request, reply),
        op::FUSE_RENAME2 => directories::rename2(ops, request, reply),
        op::FUSE_CREATE => directories::create(ops, request, reply),
        op::FUSE_TMPFILE => directories::tmpfile(ops, request, reply),
        op::FUSE_READLINK => directories::readlink(ops, request, reply),
        op::FUSE_READDIR => directories::readdir(ops, request, reply, false),
        op::FUSE_READDIRPLUS => directories::readdir(ops, request, reply, true),
        op::FUSE_OPEN => files::open(ops, request, reply),
        op::FUSE_RELEASE => files::release(ops, request, reply),
        op::FUSE_READ => files::read(ops, request, reply),
        op::FUSE_WRITE => return files::write(ops, request, reply),
        op::FUSE_FSYNC => files::fsync(ops, request, reply),
        op::FUSE_FALLOCATE => files::fallocate(ops, request, reply),
        op::FUSE_LSEEK => files::lseek(ops, request, reply),
        op::FUSE_COPY_FILE_RANGE => files::copy_file_range(ops, request, reply),
        op::FUSE_GETATTR => metadata::getattr(ops, request, reply),
        op::FUSE_STATX => metadata::statx(ops, request, reply),
        op::FUSE_SETATTR => metadata::setattr(ops, request, reply),
        op::FUSE_SETXATTR => metadata::setxattr(ops, request, reply),
        op::FUSE_GETXATTR => metadata::getxattr(ops, request, reply),
        op::FUSE_LISTXATTR => metadata::listxattr(ops, request, reply),
        op::FUSE_REMOVEXATTR => metadata::removexattr(ops, request, reply),
        op::FUSE_STATFS => metadata::statfs(ops, request, reply),
        op::FUSE_FSYNCDIR => metadata::fsyncdir(ops, request, reply),
        op::FUSE_SYNCFS => metadata::syncfs(ops, request, reply),
        op::FUSE_IOCTL => metadata::ioctl(ops, request, reply),
        // Directories are not opened, the kernel handles locks, requests are not interrupted, and FUSE_FLUSH has
        // nothing to do: the kernel writes its cache back before, and `fsync` is responsible for the rest.
        _ => Err(ENOSYS),
    }?;
    Ok(Outcome::Reply)
}

/// Whether an opcode modifies the file system. `FUSE_IOCTL` depends on its command.
fn modifies(opcode: fuse_opcode) -> bool {
    use fuse_opcode as op;
    matches!(
        opcode,
        op::FUSE_MKNOD
            | op::FUSE_MKDIR
            | op::FUSE_SYMLINK
            | op::FUSE_LINK
            | op::FUSE_UNLINK
            | op::FUSE_RMDIR
            | op::FUSE_RENAME
            | op::FUSE_RENAME2
            | op::FUSE_CREATE
            | op::FUSE_TMPFILE
            | op::FUSE_WRITE
            | op::FUSE_FALLOCATE
            | op::FUSE_COPY_FILE_RANGE
            | op::FUSE_SETATTR
            | op::FUSE_SETXATTR
            | op::FUSE_REMOVEXATTR
    )
}
