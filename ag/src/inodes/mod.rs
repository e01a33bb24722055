//! Allocating and freeing the inodes of an AG.
//!
//! | part | subject |
//! |---|---|
//! | [`chunk`] | a record of the inode trees: 64 inodes, of which some may not exist (sparse) and some are free |
//! | [`geometry`] | inode geometry: blocks and alignment of chunks, inode clusters |
//! | [`agi`] | the AGI in a transaction |
//! | `tree` | the inobt and finobt, on the btree cursor |
//! | [`select_ag`] | selecting the AG of a new inode |
//! | [`search`] | selecting the chunk in that AG |
//! | `cached_chunk` | the chunk of the last inode, to allocate the next one without a search |
//! | [`alloc`] | allocating an inode: [`Groups::alloc_inode`](crate::Groups::alloc_inode) |
//! | `chunk_alloc` | allocating chunks, whole or sparse |
//! | [`init`] | contents of new inodes, and the inode creation log item |
//! | [`free`] | freeing inodes and chunks: [`Groups::free_inodes`](crate::Groups::free_inodes) |
//! | `space` | allocating and freeing blocks for inodes and the inode trees |
//! | [`state`] | in-core counts, per AG and per volume; options |
//!
//! The finobt holds the chunks that have a free inode, and only these. With it, an allocation is a lookup in a small
//! tree and one in a large tree; without it, a walk through the inobt past all full chunks. (Brian Foster, "xfs:
//! introduce the free inode btree", linux-xfs, November 2013, has measurements.)
//!
//! # Invariants
//! - The inode trees of an AG and the counts in its AGI change together, under the AGI's lock, in one transaction.
//! - The blocks of a chunk are allocated before its record is inserted, and freed (by a deferred operation) after its
//!   record was removed.
//! - New inodes are written back before the log tail passes their creation item.
//!
//! # Locking
//! The AGI, then the AGF if blocks are needed, then tree blocks, then inode buffers. A thread waits for an AGI only
//! while it holds no AGF: after a failed chunk allocation the transaction rolls. AGs share only per-CPU counters here.

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
pub use cached_chunk::NextInode;
pub use chunk::ChunkRecord;
pub use free::{ChunkInodes, FreedInodes};
pub use geometry::{InodeCluster, InodeGeometry};
pub use state::{AgInodeState, InodeCounts, InodeOptions, VolumeInodes};
