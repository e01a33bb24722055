//! The XFS journal: decoding and recovery.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod area;
pub mod assemble;
pub mod error;
pub mod journal;
pub mod locate;
pub mod record;

pub use error::LogError;
pub use journal::{Dirty, Journal, State};
