//! Mounts of Xebec, used by programs and ended in every way. What is left is judged by Linux.
//!
//! | part | subject |
//! |---|---|
//! | [`programs`] | programs that people run, as root and as an ordinary user |
//! | [`endings`] | a server that is killed, stopped, or asked twice; files that are still open |
//! | `bed` | a folder with a volume in it, and the judges |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bed;
mod endings;
mod programs;
