//! Contents of files in memory: read from the disk once, written back in large pieces, within a budget.
//!
//! | part | subject |
//! |---|---|
//! | [`Contents`] | one file: reading, writing, changing its size and map |
//! | [`Cache`] | what all files of a volume share: limits, dirty files, syncs |
//! | [`Flusher`] | the thread that writes back |
//! | [`Backing`] | what is needed of the volume below |
//! | [`ErrorSeq`] | failed writes, told once to each open file |
//! | [`Statistics`] | what it did |
//!
//! How a write reaches the disk, and what a power cut leaves of it: docs/contents.md.
//!
//! # Invariants
//! - What is written is in memory until it is finished below; running out of space is told to the writer.
//! - Giving memory back never writes.
//!
//! # Locking
//! See [`contents`](Contents) and docs/locking.md: `Pass` > `FileIo` > `Flush` > `Layout` > what is below > `Folio` >
//! lists and indexes (`Cache`).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod ahead;
mod amount;
mod backing;
mod cache;
mod change;
mod contents;
mod counters;
mod direct;
mod errors;
mod flusher;
mod folio;
mod index;
mod job;
mod limits;
mod options;
mod pass;
mod read;
mod seek;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod units;
mod write;

pub use backing::{Backing, Claimed, Finish, Kind, Mapping, Rooms, Want, Written};
pub use cache::Cache;
pub use change::{Change, Edges};
pub use contents::Contents;
pub use counters::Statistics;
pub use errors::ErrorSeq;
pub use flusher::Flusher;
pub use options::Options;
pub use seek::{MappedRange, RangeKind};
pub use write::MAX_FILE_BYTES;
