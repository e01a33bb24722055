//! The interface between file contents in memory (`cache`) and the extent maps of files (`inode::contents`).
//!
//! | part | subject |
//! |---|---|
//! | [`Backing`] | what the cache needs of a volume: maps, reservations, claims, finishing a write |
//! | [`Mapping`] | what a range of a file maps to |
//! | [`ClaimedBlocks`], [`ReservedRmap`] | free blocks for data in flight, rmapbt space for split records |
//! | [`WrittenRange`], [`WriteCompletion`] | what was written, and what finishing it may use |
//! | [`no_space`] | what is released when space runs out, in which order, and how often |
//!
//! A write of new blocks has three steps: *claim* free blocks in memory, *write* the data to them, *finish* by one
//! transaction that allocates and maps the blocks. Why: docs/contents.md.
//!
//! # Invariants
//! All claimed blocks are reserved, at every moment: so claims are dropped before their reservation is released.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod completion;
mod mapping;
pub mod no_space;
mod volume;

pub use completion::{ClaimedBlocks, ReservedRmap, WriteCompletion, WrittenRange};
pub use mapping::{Mapping, MappingState};
pub use volume::{Backing, TIMESTAMP_TICK_NANOS};
