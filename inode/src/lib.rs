//! One file's metadata: its inode in core, its forks, and what lives in them.
//!
//! | part | subject |
//! |---|---|
//! | [`state`] | one inode in core: its bytes, what of them changed, and its extents decoded |
//! | [`extents`] | a fork's extents as a list in memory |
//!
//! # Invariants
//! The bytes of an [`InodeState`] are those of the disk: a core and the areas of both forks, big-endian. Whatever is
//! kept beside them (decoded extents) says the same. Every change marks what the log must carry.
//!
//! # Locking
//! An inode's state is changed under its lock alone (rank `Inode`), taken before any buffer: inode, then AGI, then AGF,
//! then other buffers.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod extents;
pub mod state;

pub use extents::ExtentList;
pub use state::{Features, InodeState};
