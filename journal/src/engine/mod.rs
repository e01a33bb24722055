//! How a metadata change becomes durable: transactions over locked buffers, committed to a journal.
//!
//! | part | subject |
//! |---|---|
//! | [`transaction`], [`edit`] | [`Transaction`]: what one change reads, locks and modifies |
//! | [`commits`] | what it commits of that |
//! | [`defer`] | what must follow a change in transactions of its own, with intent and done items |
//! | [`buffer`], [`cache`] | metadata blocks in memory: the raw bytes of the disk, each under its lock |
//! | [`chunks`] | which 128-byte chunks of a buffer changed |
//! | [`item`] | what all log items share, and what a commit leaves of them for the log |
//! | [`image`], [`regions`] | the two shapes of what is left |
//! | [`target`] | where transactions commit to |
//! | [`log`](mod@log) | [`Log`], the running journal: reserving, committing, forcing, unmounting |
//! | [`grant`], [`ticket`], [`sizes`] | the space of the log: who has how much of it, and what writing costs |
//! | [`cil`] | what was committed since the last checkpoint was pushed |
//! | [`iclog`], [`ring`] | checkpoints as records in buffers, and these on the disk |
//! | [`ail`] | what is in the log and not at home |
//! | [`home`] | writing buffers to their place |
//! | [`in_flight`] | blocks that were freed while a write over them was in flight |
//! | [`halt`], [`stats`] | why the journal stopped, and what it did |
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

pub mod ail;
pub mod buffer;
pub mod cache;
pub mod chunks;
pub mod cil;
pub mod commits;
pub mod defer;
pub mod edit;
pub mod error;
pub mod grant;
pub mod halt;
pub mod home;
pub mod iclog;
pub mod image;
pub mod in_flight;
pub mod item;
pub mod log;
pub mod regions;
pub mod ring;
pub mod sizes;
pub mod stats;
pub mod target;
pub mod ticket;
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
pub use item::{Commit, Grown, ItemCore, LogItem, Moment, Stable};
pub use log::{Log, Options};
pub use regions::Regions;
pub use stats::Statistics;
pub use target::{Base, Bases, BusyExtent, CommitTarget, LogReservation, StableHook, Ticket};
pub use transaction::{BufferId, Edit, Loggable, Transaction};
