//! Mounts of Xebec, used by programs and ended in every way. What is left is judged by Linux.
//!
//! | part | subject |
//! |---|---|
//! | [`programs`] | programs that people run, as root and as an ordinary user |
//! | [`databases`] | databases that are killed with their mount |
//! | [`suites`] | public suites, and random work, beside the kernel's XFS |
//! | [`devices`] | a device that fails under the mount |
//! | [`endings`] | a server that is killed, stopped, or asked twice; files that are still open |
//! | [`serving`] | numbers for Prometheus; a volume that grows while it is mounted |
//! | `bed` | a folder with a volume in it, and the judges |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bed;
mod databases;
mod devices;
mod endings;
mod programs;
mod serving;
mod suites;
mod unusual;
