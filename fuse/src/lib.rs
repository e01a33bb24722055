//! A volume as a mount: what programs ask the kernel for, the kernel asks this.
//!
//! | part | subject |
//! |---|---|
//! | [`operations`] | [`Operations`]: what a file system answers, free of how it is asked |
//! | [`served`] | [`Served`]: a volume that answers |
//! | [`session`] | [`Session`]: threads that take requests from the kernel and send replies |
//! | `crew` | which of the threads waits at the device |
//! | [`mount`] | getting a mount and its device from the kernel, as root or as an ordinary user |
//! | [`options`] | what follows `-o` on the command line |
//! | `wire` | requests and replies as bytes |
//! | [`counts`] | how many operations there were, and how long they took |
//!
//! # Invariants
//! - The volume has one writer, and that is the kernel through this: it may keep names, attributes and contents as long
//!   as it likes.
//! - A file that the kernel knows of is held: its number is not given to another one before the kernel has forgotten
//!   it.
//! - A request is answered exactly once, whatever happens. Bytes of the kernel that make no sense are answered with
//!   `EINVAL`, what is not known with `ENOSYS`, which the kernel takes for "never ask again".
//!
//! # Locking
//! Requests are independent: each is worked on by the thread that took it from the device, and no lock is held but
//! those that the volume takes; who has nothing to do stands by under a lock of its own (`crew`). The tables of open
//! files and held inodes lock an entry for the moment of a look.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod counts;
mod crew;
pub mod mount;
pub mod operations;
pub mod options;
pub mod served;
pub mod session;
mod wire;

pub use operations::{Errno, Operations};
pub use served::Served;
pub use session::Session;
