//! Contents of files, judged by Linux.
//!
//! | part | subject |
//! |---|---|
//! | [`posix`], [`rules`] | the kernel as a subject: the model's rules are Linux's |
// A test says what it expects by panicking; clippy sees that in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod posix;
mod rules;
