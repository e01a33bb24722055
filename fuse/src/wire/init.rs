//! What is agreed upon at first: the protocol's version, and who does what.

use base::errno::EPROTO;
use fuse_abi::linux as abi;
use fuse_abi::linux::{fuse_init_in, fuse_init_out};

use super::reply::Reply;
use super::request::Request;
use crate::operations::{Errno, Result};

/// The longest write, in bytes; a read is no longer. More than the kernel sends unless its administrator allows it.
pub const MOST: u32 = 1 << 20;

/// The version of the protocol that brought the last of what is relied on: `FUSE_INIT_EXT` (7.36, Linux 5.17).
const LEAST_MINOR: u32 = 36;

/// What the kernel is asked to do, where it can.
///
/// It keeps contents, names, links' targets and directories; it asks for entries with what they stand for, and in
/// parallel. It checks permissions, lists too, while masks are for the server
/// to apply, who knows where a directory's list takes their place. Bits that a write takes away are told, not searched
/// for before each write.
///
/// Not `FUSE_ASYNC_DIO`: when an asynchronous write past its cache has ended, the kernel would keep what others have
/// read of the range meanwhile (Linux 6.18). Without it whoever writes so waits for the answer, and the pages go then.
const WANTED: u64 = (abi::FUSE_ASYNC_READ
    | abi::FUSE_BIG_WRITES
    | abi::FUSE_EXPORT_SUPPORT
    | abi::FUSE_DONT_MASK
    | abi::FUSE_HAS_IOCTL_DIR
    | abi::FUSE_DO_READDIRPLUS
    | abi::FUSE_READDIRPLUS_AUTO
    | abi::FUSE_PARALLEL_DIROPS
    | abi::FUSE_POSIX_ACL
    | abi::FUSE_ABORT_ERROR
    | abi::FUSE_MAX_PAGES
    | abi::FUSE_CACHE_SYMLINKS
    | abi::FUSE_NO_OPENDIR_SUPPORT
    | abi::FUSE_EXPLICIT_INVAL_DATA
    | abi::FUSE_HANDLE_KILLPRIV_V2
    | abi::FUSE_SETXATTR_EXT
    | abi::FUSE_INIT_EXT) as u64;

/// What comes of the kernel's first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// It asks again, in this program's version.
    AsksAgain,
    /// Requests follow.
    Yes,
}

/// Answers the first request. With `writeback` the kernel keeps what is written, too, and writes it when it likes:
/// small writes cost nothing then, but that there is no space for them shows only when the file is synced or closed.
///
/// # Errors
/// `EPROTO` where the kernel is too old.
pub fn agree(request: &Request<'_>, writeback: bool, reply: &mut Reply) -> Result<Agreed> {
    let asked: fuse_init_in = request.body().take()?;
    let mut answer = fuse_init_out {
        major: abi::FUSE_KERNEL_VERSION,
        minor: abi::FUSE_KERNEL_MINOR_VERSION,
        ..fuse_init_out::default()
    };
    if asked.major > abi::FUSE_KERNEL_VERSION {
        reply.push(&answer);
        return Ok(Agreed::AsksAgain);
    }
    if asked.major < abi::FUSE_KERNEL_VERSION || asked.minor < LEAST_MINOR {
        return Err(Errno(EPROTO));
    }
    let offered = u64::from(asked.flags) | u64::from(asked.flags2) << 32;
    let kept = if writeback { u64::from(abi::FUSE_WRITEBACK_CACHE) } else { 0 };
    let flags = offered & (WANTED | kept);
    answer.flags = flags as u32; // its lower half
    answer.flags2 = (flags >> 32) as u32;
    answer.max_readahead = asked.max_readahead.max(MOST);
    (answer.max_background, answer.congestion_threshold) = (64, 48);
    answer.max_write = MOST;
    answer.max_pages = (MOST / 4096) as u16; // 256
    answer.time_gran = 1;
    reply.push(&answer);
    Ok(Agreed::Yes)
}
