//! FUSE server: makes a volume a mount.
//!
//! | part | subject |
//! |---|---|
//! | [`operations`] | [`Operations`]: the file-system interface, independent of the FUSE protocol |
//! | [`volume_operations`] | [`VolumeOperations`]: its implementation for a volume |
//! | [`session`] | [`Session`]: the connection to the kernel and the threads that answer requests |
//! | `worker_pool` | which of these threads reads the device |
//! | [`mount`] | mounting and unmounting, as root or through `fusermount3` |
//! | [`options`] | mount options (`-o`) |
//! | `wire` | encoding of requests and replies |
//! | [`statistics`] | numbers and latencies of requests |
//!
//! # Invariants
//! - The kernel, through this crate, is the only writer of the volume: it may cache names, attributes and contents
//!   without a time limit.
//! - A node id contains number and generation of an inode. Only files without names are kept until the kernel has
//!   forgotten them.
//! - Each request is answered exactly once, whatever happens: malformed requests with `EINVAL`, unknown ones with
//!   `ENOSYS`, after which the kernel does not send them again.
//!
//! # Locking
//! Requests are independent. Each is processed by the thread that read it from the device, which holds no lock besides
//! those of the volume; the state of idle threads has a lock of its own (`worker_pool`). Each open file has a lock,
//! held while it is found or closed ([`base::slab`]).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod mount;
pub mod operations;
pub mod options;
pub mod session;
pub mod statistics;
pub mod volume_operations;
mod wire;
mod worker_pool;

pub use operations::{Errno, Operations};
pub use session::{Session, SessionOptions};
pub use volume_operations::VolumeOperations;
