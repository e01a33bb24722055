//! How a metadata change becomes durable: transactions over locked buffers, committed to a journal.
//!
//! | part | subject |
//! |---|---|
//! | [`transaction`] | [`Transaction`]: what one change reads, locks and modifies |
//! | [`defer`] | what must follow a change in transactions of its own, with intent and done items |
//! | [`buffer`], [`cache`] | metadata blocks in memory: the raw bytes of the disk, each under its lock |
//! | [`chunks`] | which 128-byte chunks of a buffer changed |
//! | [`item`] | what all log items share, and what a commit leaves of them for the log |
//! | [`image`], [`regions`] | the two shapes of what is left |
//! | [`target`] | where transactions commit to |
//! | [`home`] | writing buffers to their place |
//! | [`error`] | what can go wrong |
//!
//! # How a change flows
//! [`Transaction::read`] locks a buffer and joins it; [`Transaction::bytes_mut`] notes which chunks are about to
//! change. [`Transaction::commit`] copies these chunks (and no others) into the items' snapshots in the committed item
//! list, and unlocks. Later the list is pushed to the log as one checkpoint; when that is stable, the items enter the
//! active item list, from which buffers are written home. See `docs/locking.md` for the order of locks.
//!
//! # Invariants
//! - Bytes of a buffer change only under its lock, within a transaction.
//! - A buffer is written home only when no change in it waits for the log (it is not pinned).
//! - A transaction that changed something and is not committed shuts the volume down: what it changed cannot be undone.

pub mod buffer;
pub mod cache;
pub mod chunks;
pub mod defer;
pub mod error;
pub mod home;
pub mod image;
pub mod item;
pub mod regions;
pub mod target;
pub mod transaction;

#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "unlogged"))]
pub mod unlogged;

pub use buffer::{Buffer, Extent, Segments};
pub use cache::BufferCache;
pub use defer::{Deferred, Progress};
pub use error::Error;
pub use home::{Flush, WriteBatch};
pub use item::{Commit, ItemCore, LogItem, Stable};
pub use regions::Regions;
pub use target::{BusyExtent, CommitTarget, LogReservation, Ticket};
pub use transaction::{BufferId, Edit, Loggable, Transaction};
