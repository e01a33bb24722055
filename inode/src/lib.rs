//! One file's metadata: its inode in core, its forks, and what lives in them.
//!
//! | part | subject |
//! |---|---|
//! | [`state`] | one inode's bytes in core, what of them changed, and its extents decoded |
//! | `literal` | the areas of both forks in the inode |
//! | [`inode`] | the inode under its lock: users, commits, writes home |
//! | [`table`] | all inodes in memory, by number |
//! | [`fresh`] | how a new inode begins |
//! | [`fork`], [`extents`] | where a file's blocks lie: on disk, and as a list in memory |
//! | [`contents`] | changes of a file's map: what a write ends with, truncating, punching, shifting, sharing |
//! | [`exchange`] | ranges of two files exchanged |
//! | [`symlink`] | targets of symlinks |
//! | [`attr`] | extended attributes, through all their forms |
//! | [`dir`] | directories, through all their forms |
//! | [`unlinked`], [`inactive`] | files without a name, and how they are freed in the background |
//! | [`settings`] | flags, hints and the project, as users set them |
//! | [`shared`] | what all inodes of a volume share |
//! | [`space`], [`groups`] | what is needed of the allocation groups, and how they give it |
//! | [`reservation`] | how much log space changes need |
//! | [`cluster`] | which buffer holds an inode |
//!
//! # How an inode changes
//! [`InodeCache::get`] gives a hold on it, [`inode::Inode::lock`] its state. Setters and forks change the state within
//! a transaction, whose commit takes the [`LockedInode`]; the bytes go to the cluster's buffer when the active item
//! list is written home.
//!
//! # Invariants
//! The bytes of an [`InodeState`] are those of the disk: a core and the areas of both forks, big-endian. Whatever is
//! kept beside them (decoded extents) says the same. Every change marks what the log must carry.
//!
//! # Locking
//! An inode's state is changed under its lock alone (rank `Inode`), taken before any buffer: inode, then AGI, then AGF,
//! then other buffers. Blocks of a fork (rank `Fork`) are protected by the inode's lock.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod attr;
pub mod cluster;
pub mod contents;
pub mod dir;
pub mod exchange;
pub mod extents;
pub mod fork;
pub mod group_space;
pub mod inactive;
pub mod inode;
pub mod inode_cache;
mod literal_area;
mod log_item;
pub mod new_inode;
pub mod reservation;
pub mod settings;
pub mod shared;
pub mod space;
pub mod state;
pub mod symlink;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod unlinked;

pub use extents::ExtentList;
pub use fork::Fork;
pub use inode::{Attached, Inode, InodeRef, LockedInode};
pub use inode_cache::InodeCache;
pub use new_inode::NewInode;
pub use settings::Settings;
pub use shared::Shared;
pub use state::{Features, InodeState};
