//! The interface that transactions commit to.

use std::fmt::Debug;
use std::sync::Arc;

use base::percpu::{self, PerCpu};
use base::{FsBlock, Lsn};

use super::cache::BufferCache;
use super::ticket::TicketAccount;
use super::transaction_items::TransactionItems;
use error::Error;

/// Log space of a chain of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReservation {
    /// Bytes of items that one transaction of the chain may log, without headers.
    pub bytes: u32,
    /// Usual number of transactions in the chain: all of these are reserved at once.
    pub transactions: u32,
}

/// A log reservation held by a transaction.
#[derive(Debug)]
pub struct Ticket {
    /// The reservation of each transaction in the chain.
    pub reservation: LogReservation,
    /// Bytes left for the current transaction, headers included.
    pub left: u64,
    /// Further transactions that are reserved.
    pub rolls_left: u32,
    /// The journal's accounting.
    pub(super) account: TicketAccount,
}

/// Blocks that a transaction freed. They must not be reused before its checkpoint is stable and no write over them is
/// in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyExtent {
    /// First block.
    pub start: FsBlock,
    /// Number of blocks.
    pub blocks: u32,
}

/// Called when freed blocks can be reused.
pub trait BusyExtentHook: Send + Sync + Debug {
    /// The checkpoint that freed these is stable, and no write over them is in flight.
    fn clear_busy(&self, extents: &[BusyExtent]);
}

/// What every transaction refers to. Transactions count references to it, so each CPU has its own.
#[derive(Debug)]
pub struct TransactionContext {
    pub(super) target: Arc<dyn CommitTarget>,
    pub(super) cache: Arc<BufferCache>,
}

/// The per-CPU contexts of a volume's transactions, so that CPUs do not contend for one reference count.
#[derive(Debug)]
pub struct TransactionContexts(PerCpu<Arc<TransactionContext>>);

impl TransactionContexts {
    /// Contexts of transactions that commit to `target` and read through `cache`.
    pub fn new(target: &Arc<dyn CommitTarget>, cache: &Arc<BufferCache>) -> Self {
        Self(PerCpu::new(percpu::available(), |_| TransactionContext::new(target, cache)))
    }

    /// The context of the current CPU.
    #[inline]
    pub fn local(&self) -> &Arc<TransactionContext> {
        self.0.local().1
    }
}

impl TransactionContext {
    /// A single context.
    pub fn new(target: &Arc<dyn CommitTarget>, cache: &Arc<BufferCache>) -> Arc<Self> {
        Arc::new(Self { target: Arc::clone(target), cache: Arc::clone(cache) })
    }
}

/// The running journal or, in tests of upper layers, a simpler target. No method has a default: a wrapper that forwards
/// calls would silently miss some.
pub trait CommitTarget: Send + Sync + Debug {
    /// Reserves log space; waits for it.
    ///
    /// # Errors
    /// [`Error::ShutDown`]; [`Error::NoSpace`] where the log could never hold so much.
    fn begin(&self, reservation: LogReservation) -> Result<Ticket, Error>;

    /// Reserves log space for the next transaction of a chain.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn roll(&self, ticket: &mut Ticket) -> Result<(), Error>;

    /// Formats the items' changes into the current checkpoint. The caller holds their locks until it returns.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn commit(&self, ticket: &mut Ticket, commits: TransactionItems<'_, '_>) -> Result<(), Error>;

    /// Releases what a chain did not use.
    fn end(&self, ticket: Ticket);

    /// Records a write outside the log: no transaction that commits from now on becomes stable before it. Returns the
    /// number of the write.
    fn note_unlogged_write(&self) -> u64;

    /// Number of the last write outside the log.
    fn unlogged_writes(&self) -> u64;

    /// Makes all committed changes stable. The caller holds no lock of rank `Group` or above.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn force(&self) -> Result<(), Error>;

    /// Forces the log and waits until the blocks freed by then can be reused: no write over them is in flight. Called
    /// by a thread that needs a free block.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn flush_busy(&self) -> Result<(), Error>;

    /// Whether `lsn` lies in the older half of a log that is at least half full: the tail will soon have to pass it.
    fn is_near_tail(&self, lsn: Lsn) -> bool;

    /// A number that ties a done item to its intent. It is unique among the intents of this mount and those left in the
    /// log.
    fn intent_id(&self) -> u64;

    /// Stops all writing: the volume is no longer consistent in memory.
    fn shut_down(&self, cause: &str);

    /// Requests that what was committed, and data that was written before, becomes stable soon. Does not wait.
    fn request_commit(&self) {}

    /// Requests that metadata be written back soon, so that its memory can be dropped. Does not wait.
    fn request_writeback(&self) {}

    /// Fails if the volume was shut down.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn check(&self) -> Result<(), Error>;
}
