//! Mounting and unmounting.
//!
//! | part | subject |
//! |---|---|
//! | [`MountConfig`] | source, mount point and flags |
//! | `syscall` | mounting by system call, as root |
//! | `fusermount` | mounting through `fusermount3`, as an unprivileged user |
//! | [`Mounted`] | a mount of this process; its readahead |
//! | [`unmount()`] | unmounting |

mod fusermount;
mod mounted;
mod syscall;
mod unmount;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use mounted::Mounted;
pub use syscall::remount;
pub use unmount::unmount;

/// Source, mount point and flags of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountConfig {
    /// Source in the mount table.
    pub source: String,
    /// Mount point.
    pub directory: PathBuf,
    /// Allow access by other users.
    pub allow_other: bool,
    /// Mount read-only.
    pub read_only: bool,
    /// Ignore set-user-ID and set-group-ID bits, and file capabilities.
    pub no_suid: bool,
    /// Ignore device files.
    pub no_dev: bool,
    /// Do not execute programs.
    pub no_exec: bool,
    /// Do not update access times.
    pub no_atime: bool,
}

/// File system type in the mount table.
const TYPE: &str = "fuse.xebec";
const SUBTYPE: &str = "xebec";

/// Mounts and returns the FUSE device, for a [`Session`](crate::Session).
///
/// # Errors
/// `ENOENT` and others if the directory is no valid mount point; the message of `fusermount3`.
pub fn mount(config: &MountConfig) -> io::Result<OwnedFd> {
    if rustix::process::geteuid().is_root() { syscall::mount(config) } else { fusermount::mount(config) }
}
