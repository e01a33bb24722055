//! Linux judges what Xebec writes, also after a crash: `xfs_repair -n` finds nothing, and the tree on a kernel mount
//! matches the model. In turn, Xebec recovers and changes what the kernel wrote.
//!
//! | part | subject |
//! |---|---|
//! | [`kernel`] | `xfs_repair -n`, and mounts by the kernel |
//! | [`calls`], [`matrix`], [`rules`] | the kernel as a subject: Linux and Xebec are compared with the model |
//! | [`collisions`] | many names with the same hash in a directory |
//! | [`limits`] | the maximum number of links |
//! | [`fragmented`] | files whose extent maps are not in memory as a whole |
//! | [`scenarios`], [`volumes`] | each workload on each shape of volume |
//! | [`crashes`] | a sample of crash states, recovered by the kernel |
//! | [`log_device`] | an external log |
//! | [`contents`] | Xebec and the kernel in turn change file contents |
//! | [`scopes`] | rules for paths, compared with `openat2` |
//! | [`users`] | calls by path of several users, compared with Linux |
//! | [`relay`] | Xebec and the kernel in turn recover each other's dirty log |
// Clippy permits panics in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod calls;
mod collisions;
mod contents;
mod crashes;
mod fragmented;
mod kernel;
mod limits;
mod log_device;
mod matrix;
#[path = "../contents/posix.rs"]
mod posix;
mod relay;
mod rules;
mod scenarios;
mod scopes;
mod users;
mod volumes;
