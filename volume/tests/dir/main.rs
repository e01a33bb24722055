//! [`Dir`]: files by paths. What users may do, and which rules paths obey, is compared with Linux in
//! `proof/interop/tests/engine`.
//!
//! | part | subject |
//! |---|---|
//! | [`paths`] | paths, and files that are opened and named by them |
//! | [`limits`] | ways out of a directory, and what a user must not do or see |
#![allow(clippy::unwrap_used)]

mod limits;
mod paths;

use std::sync::Arc;

use base::errno::Errno;
use block::MemoryDevice;
use xebec_volume::{Credentials, Dir, Error, Options, Volume};

/// A new volume in memory.
fn new_volume() -> Volume {
    open(&new_device())
}

/// A device in memory with a new volume.
fn new_device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// The same directory for user 1000.
fn for_user<'v>(dir: &Dir<'v>) -> Dir<'v> {
    dir.clone().with_credentials(Credentials::new(1000, 1000))
}

/// The errno of a result; 0 for success.
fn errno_of<T>(result: Result<T, Error>) -> Errno {
    result.map_or_else(|error| error.errno(), |_| Errno::new(0))
}
