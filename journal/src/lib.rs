//! The XFS journal: how a metadata change becomes durable, and how it is found again.
//!
//! | part | subject |
//! |---|---|
//! | [`Journal`] | opens a log: clean or dirty, and what lies between tail and head |
//! | [`area`] | the log as a ring of blocks |
//! | [`locate`] | finding the head, and what a power cut may have left behind it |
//! | [`record`] | one record, verified; the walk from one to the next |
//! | [`assemble`] | transactions, put together from the operations of records |
//! | [`item`], [`listing`], [`show`] | log items and all else of a log in words, for people and for programs |
//! | [`mod@restamp`] | another UUID in a clean log |
//! | [`recovery`] | replaying: the passes, their order, and each type of item |
//! | [`engine`] | transactions over locked buffers, committed to a running journal |
//! | [`overlay`] | a dirty volume as it will be: replayed in memory |
//!
//! # Invariants
//! Memory is bounded by the log, and every walk moves strictly forward, whatever the log says. Nothing is written but
//! by [`recover`] and [`fn@restamp`], and that only to the device that they are given.
//!
//! # Locking
//! In [`engine`] alone. A [`Journal`] is shared by reference, and every walk has its own buffers.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod area;
pub mod assemble;
pub mod engine;
pub mod error;
pub mod item;
pub mod journal;
pub mod listing;
pub mod locate;
pub mod overlay;
pub mod record;
pub mod recovery;
pub mod restamp;
pub mod show;
#[cfg(any(test, feature = "synth"))]
pub mod synth;
#[cfg(test)]
mod tests;

pub use error::LogError;
pub use journal::{Dirty, Journal, State};
pub use overlay::{Replayed, replay_in_memory};
pub use recovery::{OnDamage, Options, Registry, Report, recover};
pub use restamp::restamp;
