//! The metadata of one file: its in-core inode, its forks, and the structures stored in them.
//!
//! | part | subject |
//! |---|---|
//! | [`state`], `literal_area` | the contents of an inode: core, literal area, decoded extents, dirty fields |
//! | [`inode`] | the inode under its lock: references, commit, metadata writeback |
//! | [`stat`], `summary` | the metadata that `stat` returns, and what opening a file needs, readable without a lock |
//! | [`inode_cache`] | all inodes in memory, by inode number |
//! | `log_item` | the log format of an inode |
//! | [`new_inode`] | initialization of new inodes, with inherited flags |
//! | [`fork`], [`extents`] | the extent map of a fork: on disk, and as a list in memory |
//! | [`contents`] | changes of a file's extent map: end of writes, truncate, punch, shift, share |
//! | [`exchange`] | exchange of ranges of two files |
//! | [`symlink`] | targets of symbolic links |
//! | [`attr`] | extended attributes |
//! | [`dir`] | directories |
//! | `dabtree` | the hash tree of directories and attributes |
//! | [`unlinked`], [`inactive`] | unlinked inodes, and their inactivation in the background |
//! | [`settings`] | flags, extent size hints and project id (`FS_IOC_FSSETXATTR`) |
//! | [`shared`] | the shared state of all inodes of a volume |
//! | [`space`], [`group_space`] | what forks need of the allocation groups, and the implementation by [`ag`] |
//! | [`reservation`] | log and block reservations |
//! | [`cluster`] | the location of an inode in its cluster buffer |
//!
//! # How an inode changes
//! [`InodeCache::get`] returns a reference, [`inode::Inode::lock`] the locked state. Setters and forks change the state
//! within a transaction, whose commit takes the [`LockedInode`]. Metadata writeback copies the inode into its cluster
//! buffer when the AIL is pushed.
//!
//! # Invariants
//! The bytes of an [`InodeState`] are those of the disk: a core and a literal area, big-endian. Decoded extents always
//! agree with them. Every change marks the fields that the log must carry.
//!
//! # Locking
//! An inode's state is read and changed under its lock (rank `Inode`). Order: inode, AGI, AGF, other buffers. The
//! inode's lock also protects the blocks of its forks (rank `Fork`).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod attr;
pub mod cluster;
pub mod contents;
mod dabtree;
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
pub mod stat;
pub mod state;
mod summary;
pub mod symlink;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod unlinked;

pub use extents::ExtentList;
pub use fork::Fork;
pub use inode::{Attached, Inode, InodeRef, LockedInode};
pub use inode_cache::{InodeCache, inode_bytes};
pub use new_inode::NewInode;
pub use settings::Settings;
pub use shared::{Names, Shared};
pub use stat::InodeStat;
pub use state::{Features, InodeState};
