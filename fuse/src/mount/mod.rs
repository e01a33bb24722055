//! Getting a mount and its device from the kernel.
//!
//! | part | subject |
//! |---|---|
//! | [`Wanted`] | what is to be mounted, where and how |
//! | [`mod@own`] | by the system call, as root |
//! | [`helper`] | by `fusermount3`, as an ordinary user |
//! | [`Mounted`] | what was mounted; how far ahead of a reader the kernel asks |
//! | [`unmount()`] | the end |

mod ahead;
pub mod helper;
mod mounted;
pub mod own;
pub mod unmount;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use mounted::Mounted;
pub use unmount::unmount;

/// What is to be mounted, where and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// What tables of mounts show as its source.
    pub source: String,
    /// The directory.
    pub directory: PathBuf,
    /// Other users may use it.
    pub allow_other: bool,
    /// Nothing is changed.
    pub read_only: bool,
    /// Set-user-ID and set-group-ID bits, and capabilities of files, do nothing.
    pub no_suid: bool,
    /// Device files open nothing.
    pub no_dev: bool,
    /// Programs do not run.
    pub no_exec: bool,
    /// Reading leaves no time behind.
    pub no_atime: bool,
}

/// The type of the mount, as tables of mounts show it.
const TYPE: &str = "fuse.xebec";
const SUBTYPE: &str = "xebec";

/// Mounts; the device is to be served from then on ([`Session`](crate::Session)).
///
/// # Errors
/// `ENOENT` and others where the directory cannot be mounted on; what `fusermount3` says.
pub fn mount(wanted: &Wanted) -> io::Result<OwnedFd> {
    if rustix::process::geteuid().is_root() { own::mount(wanted) } else { helper::mount(wanted) }
}

/// Tells the kernel what a mount shall be from now on; who else may use it, and its source, stay as they are. What was
/// mounted to be read stays that for its server.
///
/// # Errors
/// `EPERM` for who is not root; `EINVAL` where nothing is mounted; `EBUSY` for files that are open to be written.
pub fn remount(wanted: &Wanted) -> io::Result<()> {
    own::remount(wanted)
}
