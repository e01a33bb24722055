//! What Xebec writes, judged by Linux: `xfs_repair -n` is silent, the kernel mounts it and shows the tree that the
//! model has, also after a crash; and what the kernel wrote, Xebec recovers and goes on with.
//!
//! | part | subject |
//! |---|---|
//! | [`kernel`] | `xfs_repair -n`, and mounts by the kernel |
//! | [`calls`], [`matrix`], [`rules`] | the kernel as a subject: the model's rules are Linux's, and Xebec's |
//! | [`collisions`] | many names of one hash in a directory |
//! | [`limits`] | as many links as there can be |
//! | [`scenarios`], [`volumes`] | each kind of work on each shape of volume |
//! | [`crashes`] | a sample of crash states, recovered by the kernel |
//! | [`log_device`] | the log on a device of its own |
//! | [`contents`] | Xebec and the kernel in turn on contents of files |
//! | [`relay`] | Xebec and the kernel in turn on one volume, each leaving a dirty log to the other |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod calls;
mod collisions;
mod contents;
mod crashes;
mod kernel;
mod limits;
mod log_device;
mod matrix;
#[path = "../contents/posix.rs"]
mod posix;
mod relay;
mod rules;
mod scenarios;
mod volumes;
