//! Names in memory: dentries, and path walks that take no lock and store to no memory that other threads use.
//!
//! | part | subject |
//! |---|---|
//! | [`DentryCache`] | what names in directories refer to, or that they do not exist |
//! | [`Walker`] | walks along paths, as far as their dentries are cached |
//! | `name` | the names of a path, hashed and compared in words |
//!
//! The nodes that names refer to are the caller's: this crate knows neither inodes nor disks.
//!
//! # Invariants
//! - A dentry does not change. It is inserted by a thread that holds the lock of its directory and has read the
//!   directory. It is removed by a thread that holds that lock, before the change of the name can be seen otherwise. So
//!   every dentry in the cache is true.
//! - A directory is identified by inode number and generation. Dentries of a removed directory are never found again.
//! - A walk is atomic: [`Walker::is_current`] says that there was a moment, after everything that was read before the
//!   call, at which every name of the path referred to what the walk found.
//!
//! # Locking
//! Walks take no lock. Insertion and removal lock one bucket for a few instructions. The lock of the directory is the
//! caller's.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod dentry;
mod name;
#[cfg(test)]
mod tests;
mod walk;

pub use dentry::{Child, Dentry, DentryCache, FileId, NodeKind};
pub use walk::{LastLink, MaySearch, WalkEnd, Walker};
