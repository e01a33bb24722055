//! From a request, by way of [`Operations`], to its reply.

use fuse_abi::linux::fuse_opcode;

use super::reply::Reply;
use super::request::Request;
use super::{files, names, rest};
use crate::operations::{ENOSYS, EROFS, Operations, Result};

/// Whether a request has a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is what the reply now holds.
    Reply,
    /// The same, and what the kernel was told of the file before is old.
    Outdating,
    /// None is waited for.
    None,
    /// None is waited for, and no request follows.
    End,
}

/// Works on a request and puts its reply together.
///
/// # Errors
/// What to answer instead.
pub fn answer<O: Operations + ?Sized>(
    operations: &O,
    request: &Request<'_>,
    reply: &mut Reply,
) -> Result<Answer> {
    use fuse_opcode as op;
    let Some(opcode) = request.opcode() else { return Err(ENOSYS) };
    if changes(opcode) && operations.is_read_only() {
        return Err(EROFS);
    }
    let asked = (operations, request, reply);
    match opcode {
        op::FUSE_FORGET => return Ok(names::forget(operations, request)),
        op::FUSE_BATCH_FORGET => return Ok(names::forget_all(operations, request)),
        op::FUSE_DESTROY => return Ok(Answer::End),
        op::FUSE_LOOKUP => names::lookup(asked),
        op::FUSE_MKNOD => names::mknod(asked),
        op::FUSE_MKDIR => names::mkdir(asked),
        op::FUSE_SYMLINK => names::symlink(asked),
        op::FUSE_LINK => names::link(asked),
        op::FUSE_UNLINK => names::unlink(asked),
        op::FUSE_RMDIR => names::rmdir(asked),
        op::FUSE_RENAME => names::rename(asked),
        op::FUSE_RENAME2 => names::rename2(asked),
        op::FUSE_CREATE => names::create(asked),
        op::FUSE_TMPFILE => names::tmpfile(asked),
        op::FUSE_READLINK => names::read_link(asked),
        op::FUSE_READDIR => names::list(asked, false),
        op::FUSE_READDIRPLUS => names::list(asked, true),
        op::FUSE_OPEN => files::open(asked),
        op::FUSE_RELEASE => files::release(asked),
        op::FUSE_READ => files::read(asked),
        op::FUSE_WRITE => return files::write(asked),
        op::FUSE_FSYNC => files::fsync(asked),
        op::FUSE_FALLOCATE => files::fallocate(asked),
        op::FUSE_LSEEK => files::lseek(asked),
        op::FUSE_COPY_FILE_RANGE => files::copy(asked),
        op::FUSE_GETATTR => rest::getattr(asked),
        op::FUSE_STATX => rest::statx(asked),
        op::FUSE_SETATTR => rest::setattr(asked),
        op::FUSE_SETXATTR => rest::setxattr(asked),
        op::FUSE_GETXATTR => rest::getxattr(asked),
        op::FUSE_LISTXATTR => rest::listxattr(asked),
        op::FUSE_REMOVEXATTR => rest::removexattr(asked),
        op::FUSE_STATFS => rest::statfs(asked),
        op::FUSE_FSYNCDIR => rest::fsyncdir(asked),
        op::FUSE_SYNCFS => rest::syncfs(asked),
        op::FUSE_IOCTL => rest::ioctl(asked),
        // Directories need not be opened, locks are the kernel's own affair, no request is worked on for long, and a
        // `close` has nothing to wait for: what the kernel keeps it has written before, and all else is `fsync`'s.
        _ => Err(ENOSYS),
    }?;
    Ok(Answer::Reply)
}

/// Whether a request changes something. What an `ioctl` does, its command tells.
fn changes(opcode: fuse_opcode) -> bool {
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

/// What each request is worked on with.
pub(super) type Asked<'a, 'b, O> = (&'a O, &'a Request<'b>, &'a mut Reply);
