//! The XFS journal: logging metadata changes, and recovering them after a crash.
//!
//! | part | subject |
//! |---|---|
//! | [`Journal`] | opens a log: clean or dirty, and what lies between tail and head |
//! | `area` | the log as a circular buffer of blocks |
//! | `locate` | finding the head, and what a power cut may have left behind it |
//! | `record` | one verified log record; iterating over records |
//! | `assemble` | reassembling transactions from the operations in records |
//! | [`describe`], `fields` | log items as named values, printed or serialised |
//! | `restamp` | a new UUID in a clean log |
//! | [`recovery`] | replay: the passes, their order, and each log item type |
//! | [`engine`] | the running journal: transactions over locked buffers |
//! | `overlay` | replaying a dirty log in memory |
//!
//! # Invariants
//! - Memory is bounded by the size of the log. Every loop over the log moves strictly forward, whatever the log
//!   contains.
//! - Outside [`engine`], only [`recover`] and [`restamp`] write, and only to the device that they are given.
//!
//! # Locking
//! Only in [`engine`]. A [`Journal`] is shared by reference; each iteration has its own buffers.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod area;
mod assemble;
pub mod describe;
pub mod engine;
mod error;
mod fields;
mod journal;
mod locate;
mod overlay;
mod record;
pub mod recovery;
mod restamp;
#[cfg(any(test, feature = "synth"))]
pub mod synth;
#[cfg(test)]
mod tests;

pub use assemble::{RawLogItem, RecoveredTransaction};
pub use error::LogError;
pub use fields::{LogFields, LogValue};
pub use journal::{Dirty, Journal, State};
pub use locate::DiscardedRecords;
pub use overlay::replay_in_memory;
pub use record::LogRecord;
pub use recovery::{OnDamage, Options, RecoveryReport, ReplayRegistry, recover};
pub use restamp::restamp;
