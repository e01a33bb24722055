//! What every rung shares: units as types, and the numbers of errors.
//!
//! | part | subject |
//! |---|---|
//! | [`units`] | block, inode and sequence numbers that cannot be confused with each other |
//! | [`errno`] | the POSIX error numbers that leave the library |
//!
//! # Invariants
//! Nothing here knows a byte of the disk format: a unit is a number with a meaning, and how it is packed on disk is
//! told by `format`.
#![forbid(unsafe_code)]

pub mod errno;
pub mod units;

pub use units::{AgBlock, AgIno, AgNumber, Daddr, FileBlock, FsBlock, Ino, Lsn};
