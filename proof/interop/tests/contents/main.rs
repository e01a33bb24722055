//! File contents: the model and the FUSE mount compared with Linux.
//!
//! | part | subject |
//! |---|---|
//! | [`posix`], [`rules`] | the kernel as a subject, and its comparison with the model |
// Clippy permits panics in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod posix;
mod rules;
