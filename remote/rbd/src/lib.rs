//! Images of Ceph (RBD) as devices, through librbd, which is loaded when the first one is opened: neither the build nor
//! a program that uses this crate needs Ceph.
//!
//! ```no_run
//! use xebec_rbd::{Pool, RbdDevice, RbdOptions, RbdUrl};
//!
//! let url: RbdUrl = "rbd://rbd/volume".parse()?;
//! let pool = Pool::open(&url, None)?;
//! pool.create(&url, 10 << 30)?;
//! let device = RbdDevice::open_in(&pool, &url, &RbdOptions { writable: true, ..RbdOptions::default() })?;
//! # Ok::<(), xebec_rbd::RbdError>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `url` | [`RbdUrl`]: `rbd://POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]` |
//! | `library` | the functions of librados and librbd |
//! | `cluster` | [`Pool`]: a connection, by the configuration that `rbd` uses |
//! | `manage` | creating, cloning and removing images and snapshots |
//! | `image` | an open image, its lock and its snapshots |
//! | `batch` | operations in flight |
//! | `device` | [`RbdDevice`]: an image as a [`block::Device`] |
//! | `error` | [`RbdError`] |
//!
//! # Invariants
//! - One client at a time writes to an image: `device`.
//! - Buffers outlive the operations on them: `batch`.
//! - A handle outlives all that was opened with it: an image owns its pool, and a pool its cluster.
//!
//! # Locking
//! None: handles of the libraries are safe to use from several threads.

mod batch;
mod cluster;
mod device;
mod error;
mod image;
mod library;
mod manage;
mod url;

pub use cluster::Pool;
pub use device::{RbdDevice, RbdOptions};
pub use error::RbdError;
pub use image::Snapshot;
pub use url::{RbdUrl, SCHEME};

#[cfg(test)]
mod tests;
