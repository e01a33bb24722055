//! Invalidation of attributes that the kernel has cached (`FUSE_NOTIFY_INVAL_INODE`).
//!
//! The kernel caches attributes without a time limit. Attributes in a reply that was sent before a change, but is
//! processed after it, would stay in the cache although they are stale. The kernel detects this for `write` and
//! `setattr` by a version counter. For the other changes, listed here, the server must send a notification before the
//! reply. Writeback of pages that were changed through `mmap` is one of them: its time is unrelated to requests.

use fuse_abi::linux::{
    FUSE_WRITE_CACHE, fuse_link_in, fuse_notify_code, fuse_notify_inval_inode_out, fuse_opcode,
    fuse_out_header, fuse_rename_in, fuse_write_in,
};
use zerocopy::IntoBytes;

use super::request::Request;
use crate::operations::NodeId;

/// The inodes whose cached attributes are stale after a request.
pub fn invalidated_nodes(request: &Request<'_>) -> [Option<NodeId>; 2] {
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
            [Some(node), linked.map(|arguments| NodeId(arguments.oldnodeid))]
        }
        // Both structures begin with the directory.
        Some(op::FUSE_RENAME | op::FUSE_RENAME2) => {
            let to = body.take::<fuse_rename_in>().ok().map(|arguments| NodeId(arguments.newdir));
            [Some(node), to.filter(|to| *to != node)]
        }
        Some(op::FUSE_WRITE) => {
            let arguments = body.take::<fuse_write_in>().ok();
            [arguments.filter(|arguments| arguments.write_flags & FUSE_WRITE_CACHE != 0).map(|_| node), None]
        }
        _ => [None, None],
    }
}

/// A notification that invalidates the attributes of an inode, but not its data. It fails with `ENOENT` if the kernel
/// does not know the inode.
pub fn inval_inode(node: NodeId) -> Vec<u8> {
    let body = fuse_notify_inval_inode_out { ino: node.0, off: -1, len: 0 };
    let len = size_of::<fuse_out_header>() + size_of_val(&body);
    // In a notification, `unique` is 0 and `error` is its code.
    let error = fuse_notify_code::FUSE_NOTIFY_INVAL_INODE as i32;
    let header = fuse_out_header { len: len as u32, error, unique: 0 };
    [header.as_bytes(), body.as_bytes()].concat()
}
