//! Inodes of an allocation group: which exist, which are free, and how they come and go.
//!
//! | part | subject |
//! |---|---|
//! | [`chunk`] | a record of the inode trees: 64 inodes, some of which may not exist, some free |
//! | [`shape`] | how many blocks a chunk takes, where it may begin, which inodes share a buffer |
//! | [`agi`] | the AGI in a transaction |
//! | `tree` | both inode trees, on the one B+tree cursor |
//! | [`choose`] | which AG a new inode goes to |
//! | [`search`] | which chunk of that AG |
//! | `current` | the chunk that gave the last inode, to give the next |
//! | [`take`] | allocating an inode: [`Groups::alloc_inode`](crate::Groups::alloc_inode) |
//! | `grow` | more inodes for an AG: whole chunks, or parts |
//! | [`fresh`] | the bytes of new inodes, and the log item that stands for them |
//! | [`free`] | freeing inodes, and their chunk: [`Groups::free_inodes`](crate::Groups::free_inodes) |
//! | `space` | where blocks for inodes and their trees come from |
//! | [`state`] | counts in memory, per AG and per volume; options |
//!
//! The free inode tree holds the chunks that have a free inode, and only these. With it, an allocation is a search in a
//! small tree and one in the large one; without it, a search through the large one, past all chunks that are full.
//! (Brian Foster, "xfs: introduce the free inode btree", linux-xfs, November 2013, has the figures.)
//!
//! # Invariants
//! - The trees of an AG and the counts in its AGI change together, under the AGI's lock, in one transaction.
//! - A record's blocks are the AG's: allocated before it comes, freed (by a deferred operation) after it went.
//! - New inodes are on the disk before the log passes the item that made them.
//!
//! # Locking
//! The AGI, then the AGF if blocks are needed, then blocks of the trees, then buffers of inodes. An AGI is waited for
//! only while no AGF is held: after a chunk was allocated in vain the transaction rolls. AGs share nothing here but
//! per-CPU counters.

pub mod agi;
pub mod alloc;
mod cached_chunk;
pub mod chunk;
mod chunk_alloc;
pub mod free;
pub mod geometry;
pub mod init;
pub mod search;
pub mod select_ag;
mod space;
pub mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod tree;

pub use agi::Agi;
pub use alloc::InodeAllocRequest;
pub use chunk::ChunkRecord;
pub use free::{ChunkInodes, FreedInodes};
pub use geometry::{InodeCluster, InodeGeometry};
pub use state::{AgInodeState, InodeCounts, InodeOptions, VolumeInodes};
