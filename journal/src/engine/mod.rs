//! The running journal: transactions over locked buffers, committed to the log.
//!
//! | part | subject |
//! |---|---|
//! | `transaction`, `joined_buffer` | [`Transaction`]: what one change reads, locks and modifies |
//! | `transaction_items` | the log items that a transaction commits |
//! | `defer` | deferred operations: intent and done items |
//! | `buffer`, `cache` | metadata buffers: the raw bytes of the disk, each under its lock |
//! | `peeked_buffers` | [`PeekedBuffers`]: buffers that are read without their locks |
//! | `chunk_bitmap` | which 128-byte chunks of a buffer changed |
//! | `item` | the part common to all log items; log vectors |
//! | `buffer_vector`, `regions` | log vectors of buffers and of other items |
//! | `commit_target` | the interface that transactions commit to |
//! | `log` | [`Log`]: reserving, committing, forcing, unmounting; the background threads |
//! | `grant`, `ticket`, `sizes` | accounting of log space |
//! | `cil` | the committed item list: what was committed since the last checkpoint was pushed |
//! | `iclog`, `log_device` | in-core log buffers, and writing them to the log |
//! | `ail` | the active item list: items that are in the log and not written back |
//! | `writeback` | metadata writeback |
//! | `inflight_writes` | freed blocks that wait for a metadata write in flight |
//! | `shutdown`, `stats` | why the journal stopped; its counters |
//! | `tuning` | batch sizes, prefetch distances and intervals |
//! | `error` | errors of changes |
//!
//! # How a change flows
//! [`Transaction::read`] locks a buffer and joins it to the transaction. [`Transaction::bytes_mut`] marks the chunks
//! that are about to change. [`Transaction::commit`] copies these chunks into the log vectors of the committed item
//! list (CIL) and unlocks the buffers. Later the CIL is pushed to the log as one checkpoint. When the checkpoint is
//! stable, its items move to the active item list (AIL), from which they are written back. `docs/locking.md` has the
//! lock order.
//!
//! # Invariants
//! - Bytes of a buffer change only under its lock, within a transaction.
//! - A buffer is written back only when it is not pinned: all its changes are in the stable log.
//! - A transaction that changed something and is dropped without a commit shuts the volume down: its changes cannot be
//!   undone.

mod ail;
mod buffer;
mod buffer_vector;
mod cache;
mod chunk_bitmap;
mod cil;
mod commit_target;
mod defer;
mod grant;
mod iclog;
mod inflight_writes;
mod item;
mod joined_buffer;
mod log;
mod log_device;
#[cfg(any(test, feature = "no-journal"))]
mod no_journal;
mod peeked_buffers;
mod regions;
mod shutdown;
mod sizes;
mod stats;
mod ticket;
mod transaction;
mod transaction_items;
mod tuning;
mod writeback;

#[cfg(test)]
mod tests;

pub use buffer::{Buffer, BufferExtents, DiskExtent};
pub use cache::BufferCache;
pub use commit_target::{
    BusyExtent, BusyExtentHook, CommitTarget, LogReservation, Ticket, TransactionContext, TransactionContexts,
};
pub use defer::{DeferredKind, DeferredOperation, DeferredProgress, RecoveredIntent};
pub use item::{AfterCommit, CommitItem, CommitPosition, ItemCore, LogItem, VectorGrowth};
pub use joined_buffer::JoinedBuffer;
pub use log::{Log, LogBounds, Options};
#[cfg(any(test, feature = "no-journal"))]
pub use no_journal::NoJournal;
pub use peeked_buffers::{PeekedBuffers, PeekedBytes};
pub use regions::LogRegions;
pub use stats::LogStatistics;
pub use transaction::{BufferId, Loggable, Transaction};
pub use transaction_items::TransactionItems;
pub use writeback::{DelwriQueue, PushResult};
