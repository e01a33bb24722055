//! `FUSE_INIT`: negotiates the protocol version and features.

use base::errno::EPROTO;
use fuse_abi::linux as abi;
use fuse_abi::linux::{fuse_init_in, fuse_init_out};

use super::reply::Reply;
use super::request::Request;
use crate::operations::{Errno, Result};

/// Maximum size of writes and reads, in bytes. The kernel may have a lower limit (`fs.fuse.max_pages_limit`).
pub const MAX_TRANSFER: u32 = 1 << 20;
/// Least size: the longest value of an extended attribute, twice.
const MIN_TRANSFER: u32 = 128 << 10;
const PAGE: u32 = 4096;

/// How to serve a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// The kernel caches writes (`FUSE_WRITEBACK_CACHE`): small writes are faster, but `ENOSPC` is reported only by
    /// `fsync` and `close`.
    pub writeback: bool,
    /// Largest size of writes and reads, in bytes: 128 KiB to [`MAX_TRANSFER`]. Each thread has two buffers for it.
    pub max_transfer: u32,
}

impl SessionOptions {
    /// The largest size of writes and reads: a multiple of a page.
    pub fn max_transfer(self) -> u32 {
        self.max_transfer.clamp(MIN_TRANSFER, MAX_TRANSFER) / PAGE * PAGE
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { writeback: false, max_transfer: MAX_TRANSFER }
    }
}

/// Minimum minor version: `FUSE_INIT_EXT` (7.36, Linux 5.17).
const MIN_MINOR: u32 = 36;

/// Features to enable if the kernel supports them.
///
/// The kernel caches contents, names, link targets and directories. It reads directories with attributes, and in
/// parallel. It checks permissions including ACLs, but the server applies the umask, as it knows whether a directory
/// has a default ACL. The kernel says when a write removes privileges, so that they are not looked up before each
/// write.
///
/// Not `FUSE_ASYNC_DIO`: after an asynchronous direct write the kernel would keep pages of the range that were read
/// meanwhile (Linux 6.18). Without it the writer waits for the reply, and the pages are invalidated then.
const FEATURES: u64 = (abi::FUSE_ASYNC_READ
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

/// Result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Negotiation {
    /// The kernel sends `FUSE_INIT` again with this version.
    Retry,
    /// Other requests follow.
    Done,
}

/// Replies to `FUSE_INIT`.
///
/// # Errors
/// `EPROTO` if the kernel is too old.
pub fn negotiate(request: &Request<'_>, options: SessionOptions, reply: &mut Reply) -> Result<Negotiation> {
    let kernel: fuse_init_in = request.body().take()?;
    let mut init = fuse_init_out {
        major: abi::FUSE_KERNEL_VERSION,
        minor: abi::FUSE_KERNEL_MINOR_VERSION,
        ..fuse_init_out::default()
    };
    if kernel.major > abi::FUSE_KERNEL_VERSION {
        reply.push(&init);
        return Ok(Negotiation::Retry);
    }
    if kernel.major < abi::FUSE_KERNEL_VERSION || kernel.minor < MIN_MINOR {
        return Err(Errno(EPROTO));
    }
    let offered = u64::from(kernel.flags) | u64::from(kernel.flags2) << 32;
    let cache = if options.writeback { u64::from(abi::FUSE_WRITEBACK_CACHE) } else { 0 };
    let flags = offered & (FEATURES | cache);
    init.flags = flags as u32; // lower half
    init.flags2 = (flags >> 32) as u32;
    init.max_readahead = kernel.max_readahead.max(MAX_TRANSFER);
    (init.max_background, init.congestion_threshold) = (64, 48);
    init.max_write = options.max_transfer();
    init.max_pages = (options.max_transfer() / PAGE) as u16; // at most 256
    init.time_gran = 1;
    reply.push(&init);
    Ok(Negotiation::Done)
}
