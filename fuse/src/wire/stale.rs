//! What the kernel was told and may not keep.
//!
//! Whoever asks for what is known of a file gets an answer that the kernel keeps until it changes the file. An answer
//! that was sent before a change and is taken up after it would be kept for ever. The kernel numbers what it is told,
//! and by that leaves out such an answer, at some changes by itself (a `write`, what `setattr` sets); at the others,
//! which these are, whoever serves it must say so before the change is answered. A page that a program changed in
//! memory is one of them: the kernel writes it whenever it likes.

use fuse_abi::linux::{
    FUSE_WRITE_CACHE, fuse_link_in, fuse_notify_code, fuse_notify_inval_inode_out, fuse_opcode,
    fuse_out_header, fuse_rename_in, fuse_write_in,
};
use zerocopy::IntoBytes;

use super::request::Request;
use crate::operations::Node;

/// The files of which, after a request, nothing may be kept that was told before it.
pub fn stale(request: &Request<'_>) -> [Option<Node>; 2] {
    use fuse_opcode as op;
    let (node, mut body) = (request.node(), request.body());
    match request.opcode() {
        Some(
            op::FUSE_MKNOD
            | op::FUSE_MKDIR
            | op::FUSE_SYMLINK
            | op::FUSE_CREATE
            | op::FUSE_UNLINK
            | op::FUSE_RMDIR
            | op::FUSE_FALLOCATE
            | op::FUSE_SETXATTR
            | op::FUSE_REMOVEXATTR
            | op::FUSE_IOCTL,
        ) => [Some(node), None],
        Some(op::FUSE_LINK) => {
            let linked = body.take::<fuse_link_in>().ok();
            [Some(node), linked.map(|asked| Node(asked.oldnodeid))]
        }
        // The directory comes first in both forms.
        Some(op::FUSE_RENAME | op::FUSE_RENAME2) => {
            let to = body.take::<fuse_rename_in>().ok().map(|asked| Node(asked.newdir));
            [Some(node), to.filter(|to| *to != node)]
        }
        Some(op::FUSE_WRITE) => {
            let asked = body.take::<fuse_write_in>().ok();
            [asked.filter(|asked| asked.write_flags & FUSE_WRITE_CACHE != 0).map(|_| node), None]
        }
        _ => [None, None],
    }
}

/// Tells the kernel that what it knows of a file is old, but for its contents.
pub fn notice(node: Node) -> Vec<u8> {
    let body = fuse_notify_inval_inode_out { ino: node.0, off: -1, len: 0 };
    let len = size_of::<fuse_out_header>() + size_of_val(&body);
    // Without the number of a request, the error tells what follows.
    let error = fuse_notify_code::FUSE_NOTIFY_INVAL_INODE as i32;
    let header = fuse_out_header { len: len as u32, error, unique: 0 }; // some bytes
    [header.as_bytes(), body.as_bytes()].concat()
}
