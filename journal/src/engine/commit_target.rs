//! Where transactions commit to.

use std::fmt::Debug;
use std::sync::Arc;

use base::percpu::{self, PerCpu};
use base::{FsBlock, Lsn};

use super::cache::BufferCache;
use super::error::Error;
use super::ticket::TicketAccount;
use super::transaction_items::TransactionItems;

/// How much log space a change may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReservation {
    /// Bytes of items that one transaction of the chain may log, without the log's own headers.
    pub bytes: u32,
    /// How many transactions the chain normally has: so many are reserved at once.
    pub transactions: u32,
}

/// A reservation that a transaction holds.
#[derive(Debug)]
pub struct Ticket {
    /// What each transaction of the chain may log.
    pub reservation: LogReservation,
    /// What is left for the current transaction, in bytes of items and headers.
    pub left: u64,
    /// Further transactions that are reserved already.
    pub rolls_left: u32,
    /// What the journal knows of it.
    pub(super) account: TicketAccount,
}

/// Blocks that a transaction freed: not to be used again until its checkpoint is stable and no write over them is in
/// flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyExtent {
    /// The first block.
    pub start: FsBlock,
    /// Blocks.
    pub blocks: u32,
}

/// Told when freed blocks may be used again.
pub trait BusyExtentHook: Send + Sync + Debug {
    /// The checkpoint that freed these is stable, and no write over them is in flight.
    fn clear_busy(&self, extents: &[BusyExtent]);
}

/// What every transaction refers to. Transactions count their references to it, so there is one for each CPU.
#[derive(Debug)]
pub struct TransactionContext {
    pub(super) target: Arc<dyn CommitTarget>,
    pub(super) cache: Arc<BufferCache>,
}

/// Where transactions of a volume begin: for each CPU a [`TransactionContext`], so that CPUs do not meet on its
/// reference count.
#[derive(Debug)]
pub struct TransactionContexts(PerCpu<Arc<TransactionContext>>);

impl TransactionContexts {
    /// For transactions that commit to `target` and read through `cache`.
    pub fn new(target: &Arc<dyn CommitTarget>, cache: &Arc<BufferCache>) -> Self {
        Self(PerCpu::new(percpu::available(), |_| TransactionContext::new(target, cache)))
    }

    /// That of the current CPU.
    #[inline]
    pub fn local(&self) -> &Arc<TransactionContext> {
        self.0.local().1
    }
}

impl TransactionContext {
    /// One base alone.
    pub fn new(target: &Arc<dyn CommitTarget>, cache: &Arc<BufferCache>) -> Arc<Self> {
        Arc::new(Self { target: Arc::clone(target), cache: Arc::clone(cache) })
    }
}

/// The running journal; or, in tests of what stands on transactions, something simpler. Nothing has a default: what
/// passes calls on would silently leave out those that it forgets.
pub trait CommitTarget: Send + Sync + Debug {
    /// Reserves log space; waits for it.
    ///
    /// # Errors
    /// [`Error::ShutDown`]; [`Error::NoSpace`] where the log could never hold so much.
    fn begin(&self, reservation: LogReservation) -> Result<Ticket, Error>;

    /// Reserves for the next transaction of a chain.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn roll(&self, ticket: &mut Ticket) -> Result<(), Error>;

    /// Takes the items' changes into the log that is being built. The caller holds their locks until it returns.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn commit(&self, ticket: &mut Ticket, commits: TransactionItems<'_, '_>) -> Result<(), Error>;

    /// Gives back what a chain did not use.
    fn end(&self, ticket: Ticket);

    /// Something was written past the log: no transaction that commits from now on becomes stable before it.
    fn note_unlogged_write(&self);

    /// Makes everything stable that was committed so far. The caller holds no lock of rank `Group` or above.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn force(&self) -> Result<(), Error>;

    /// The same, and returns when what was freed by then can be used again: no write over it is in flight. What waits
    /// for a free block calls it.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn flush_busy(&self) -> Result<(), Error>;

    /// Whether the record at `lsn` lies in the older half of a log that is at least half full: the tail will soon want
    /// to move past it.
    fn is_near_tail(&self, lsn: Lsn) -> bool;

    /// A number that ties a done item to its intent: no other intent of this volume's run has it, and none that is in
    /// the log from before.
    fn intent_id(&self) -> u64;

    /// Stops all writing: the volume can no longer be trusted to go forward.
    fn shut_down(&self, cause: &str);

    /// Whether the volume was shut down.
    ///
    /// # Errors
    /// [`Error::ShutDown`], if so.
    fn check(&self) -> Result<(), Error>;
}
