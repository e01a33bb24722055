//! File contents in memory: cached reads, delayed allocation, writeback, within a memory limit.
//!
//! | part | subject |
//! |---|---|
//! | [`Contents`] | one file: reading, writing, changing its size and map |
//! | [`Cache`] | what all files of a volume share: limits, syncs |
//! | [`DirtyTracking`] | the dirty files, and since when they are dirty |
//! | [`WritebackOrder`] | in which order they are written back |
//! | [`Flusher`] | the threads that write back |
//! | [`BulkWriter`] | contents of new files, written without folios |
//! | [`ErrorSeq`] | write errors, reported once to each open file |
//! | [`Statistics`] | counters |
//!
//! A write goes through `write` (folios become dirty, blocks are reserved), `file_writeback` (dirty blocks are placed,
//! with claims of a `claim_pool`), `writeback` (plugs, completions), and [`backing::Backing::finish`] (the
//! transaction). The bulk writer uses the same last steps, direct I/O the last one. How a write reaches the disk, and
//! what a power cut leaves of it: docs/contents.md.
//!
//! # Invariants
//! - Written data is in memory until its write is finished. Writers get `ENOSPC`, not writeback.
//! - Reclaim never writes, unless an option says so.
//!
//! # Locking
//! See [`Contents`] and docs/locking.md: `Pass` > `FileIo` > `Flush` > `Layout` > locks of the backing > `Folio` >
//! lists and indexes (`Cache`).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod alloc_units;
mod bulk_writer;
mod cache;
mod claim_pool;
mod contents;
mod counters;
mod direct;
mod dirty_files;
mod file_writeback;
mod flusher;
mod folio;
mod index;
mod latency;
mod limits;
mod map_change;
mod options;
mod order;
mod preallocation;
mod read;
mod reclaim;
mod seek;
mod stretch;
mod sync;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tuning;
mod wakeup;
mod write;
mod write_errors;
mod writeback;

pub use bulk_writer::BulkWriter;
pub use cache::Cache;
pub use contents::Contents;
pub use counters::Statistics;
pub use dirty_files::{DirtyFile, DirtyTracking, Due};
pub use flusher::Flusher;
pub use map_change::{Edges, MapChange};
pub use options::{DirtyLimit, Options};
pub use order::{ByAge, ByInode, ByPlace, WritebackCandidate, WritebackOrder};
pub use reclaim::ReclaimPolicy;
pub use seek::{MappedRange, RangeKind, SeekTarget};
pub use write::MAX_FILE_BYTES;
pub use write_errors::ErrorSeq;
