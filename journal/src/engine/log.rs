//! The running journal of one volume.
//!
//! | part | does |
//! |---|---|
//! | [`Log`] | the interface of transactions and of the volume: reserve, commit, force, unmount |
//! | [`Options`] | sizes and numbers of parts |
//! | `commit_target` | reserving and committing |
//! | `intent_ids` | identifiers of intents |
//! | `shared` | state shared by the journal's threads; shutdown |
//! | `ail_push` | the thread that moves the tail: metadata writeback of the oldest items |
//! | `background` | the thread that pushes large or old checkpoints and covers an idle log |
//! | `threads` | starting and joining the threads; their work while there are none |
//! | `notify` | waking a thread |
//!
//! # Invariants
//! - After a shutdown nothing is written and no thread waits: every call returns [`Error::ShutDown`].
//! - The threads end with the last reference to the [`Log`], or at unmount.
//!
//! # Locking
//! No lock of this module is held across a call of its parts.

mod ail_push;
mod background;
mod commit_target;
mod intent_ids;
mod notify;
mod shared;
mod threads;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::Lsn;
use base::memory::Share;
use base::percpu;
use block::Device;
use format::superblock::Superblock;

use self::shared::{LogParameters, LogShared};
use super::buffer::Buffer;
use super::cache::BufferCache;
use super::commit_target::{BusyExtentHook, CommitTarget, LogReservation, Ticket, TransactionContexts};
use super::defer::RecoveredIntent;
use super::grant::{GrantHead, GrantPositions};
use super::iclog::{IclogOptions, Iclogs, checkpoint_writer};
use super::log_device::LogDevice;
use super::shutdown::Shutdown;
use super::sizes::LogSizes;
use super::stats::LogStatistics;
use super::transaction::Transaction;
use super::transaction_items::TransactionItems;
use super::tuning::PUSH_INTERVAL;
use crate::{Journal, State};
use error::Error;

/// Sizes and numbers of the journal's parts.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shards of the committed item list; `None`: one for each CPU. Linux before 6.0 had a single list.
    pub shards: Option<usize>,
    /// Number of iclogs, 2 to 8, but at most an eighth of the memory.
    pub buffers: usize,
    /// Bytes of an iclog; `None`: 32 KiB, or the log stripe unit if that is larger.
    pub buffer_bytes: Option<u32>,
    /// Number of threads that write iclogs.
    pub writers: usize,
    /// Time without a push after which committed changes are pushed and an idle log is covered.
    pub interval: Duration,
    /// While the log is in use, committed changes are pushed at this interval, from a push on, as long as there are
    /// such changes. `None`: they wait for [`interval`](Self::interval).
    pub commit_interval: Option<Duration>,
    /// Start the threads when the log is opened. Otherwise the thread that waits for the log does their work, and they
    /// start when a thread needs them that cannot: for a volume that is opened, changed a little and closed. Until then
    /// nothing is pushed because of its age.
    pub background: bool,
    /// Write no log records: a change is stable when it is written back, and after a crash the volume is unusable. For
    /// a volume that is not used before it is unmounted. The unmount record is still written.
    pub without_journal: bool,
    /// The memory of the metadata buffer cache, the committed item list and the iclogs.
    pub memory: Arc<Share>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: None,
            buffers: 8,
            buffer_bytes: None,
            writers: 2,
            interval: PUSH_INTERVAL,
            commit_interval: None,
            background: true,
            without_journal: false,
            memory: Share::alone(256 << 20),
        }
    }
}

/// Head and tail of the log on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// LSN of the next record.
    pub head: Lsn,
    /// The oldest record that recovery would read; the head if the log is clean.
    pub tail: Lsn,
    /// The oldest record that is still needed: that of the oldest unfinished intent; the head if there is none.
    pub needed: Lsn,
}

impl LogBounds {
    /// The bounds of an opened log, before or after its recovery.
    pub fn of(journal: &Journal<'_>) -> Self {
        let tail = journal.dirty().map_or(journal.head(), |dirty| dirty.tail);
        Self { head: journal.head(), tail, needed: journal.head() }
    }

    /// These bounds when recovery left these intents unfinished: their records are needed until they are finished.
    #[must_use]
    pub fn keeping(self, intents: impl Iterator<Item = Lsn>) -> Self {
        Self { needed: intents.min().unwrap_or(self.head), ..self }
    }
}

/// The running journal.
#[derive(Debug)]
pub struct Log {
    shared: Arc<LogShared>,
    /// They refer to `shared` alone, so that the threads end even if transactions were left open.
    contexts: TransactionContexts,
}

impl Log {
    /// Starts the journal of a volume whose log is clean.
    ///
    /// # Errors
    /// Those of [`Journal::open`]; [`Error::Unusable`] if the log is dirty, or the options do not fit it.
    pub fn open(
        superblock: &Superblock,
        data: Arc<dyn Device>,
        external: Option<Arc<dyn Device>>,
        hook: Option<Arc<dyn BusyExtentHook>>,
        options: &Options,
    ) -> Result<Arc<Self>, Error> {
        let journal = Journal::open(superblock, &*data, external.as_deref())?;
        if let State::Dirty(_) = journal.state() {
            return Err(Error::log(
                "the log is dirty: it must be recovered before the volume is written".into(),
            ));
        }
        let bounds = LogBounds::of(&journal);
        drop(journal);
        Self::start(superblock, data, external, bounds, hook, options)
    }

    /// Starts the journal of a log that is clean, or whose recovery is complete and flushed.
    ///
    /// # Errors
    /// [`Error::Unusable`] if the options do not fit the log; device errors.
    pub fn start(
        superblock: &Superblock,
        data: Arc<dyn Device>,
        external: Option<Arc<dyn Device>>,
        bounds: LogBounds,
        hook: Option<Arc<dyn BusyExtentHook>>,
        options: &Options,
    ) -> Result<Arc<Self>, Error> {
        let geometry = &superblock.geometry;
        let log_device = LogDevice::new(geometry, &data, external.as_ref(), &bounds)?;
        let sizes = LogSizes::new(log_device.bytes(), geometry.log_stripe_unit, options.buffer_bytes)?
            .with_memory(options.memory.part());
        let head = log_device.position(bounds.head);
        let stop = |shutdown: Shutdown| Error::log(format!("the log cannot be written: {shutdown}"));
        if bounds.tail == bounds.head {
            log_device.complete(bounds.head).map_err(stop)?;
        }
        if log_device.clear_ahead(head, log_device.blocks_until(bounds.head, bounds.tail)).map_err(stop)? {
            log_device.flush().map_err(stop)?;
        }
        let positions = GrantPositions { tail: log_device.position(bounds.needed), head };
        let grant = GrantHead::new(log_device.bytes(), sizes.unit, positions);
        let iclogs = Iclogs::new(
            log_device,
            sizes,
            IclogOptions {
                uuid: superblock.raw.uuid,
                has_own_device: external.is_some(),
                stable_tail: bounds.needed,
                next: head,
                count: options.buffers,
                memory: Arc::clone(&options.memory),
            },
        );
        let cache = BufferCache::new(Arc::clone(&data), Arc::clone(&options.memory));
        let shared = Arc::new(LogShared::new(
            data,
            cache,
            grant,
            iclogs,
            LogParameters {
                geometry: geometry.clone(),
                head: bounds.head,
                shards: options.shards.unwrap_or_else(percpu::available),
                without_journal: options.without_journal,
                hook,
            },
        ));
        let target: Arc<dyn CommitTarget> = shared.clone();
        shared.cache.set_log(Arc::downgrade(&target));
        let contexts = TransactionContexts::new(&target, &shared.cache);
        shared.threads.attach(&shared, options);
        let log = Arc::new(Self { shared, contexts });
        if options.background {
            log.shared.start_threads()?;
        }
        Ok(log)
    }

    /// Keeps the record of an unfinished intent, which recovery found, until a transaction that
    /// [finishes](Transaction::finish_intent) it is stable. [`LogBounds::keeping`] must have included it. Call this
    /// before the first transaction. Until [`Log::intents_finished`], only one thread begins transactions, and a lack
    /// of log space is an error: that thread would wait for itself.
    pub fn add_recovered_intent(&self, lsn: Lsn, id: u64) -> RecoveredIntent {
        self.shared.recovering_intents.store(true, Relaxed);
        let adopted = RecoveredIntent::new(id);
        self.shared.ail.add_recovered_intent(adopted.item(), lsn);
        adopted
    }

    /// All recovered intents are finished.
    pub fn intents_finished(&self) {
        self.shared.recovering_intents.store(false, Relaxed);
    }

    /// Begins a transaction; waits for log space. The caller holds no lock that moving the tail may need.
    ///
    /// # Errors
    /// See [`CommitTarget::begin`].
    pub fn begin(&self, reservation: LogReservation) -> Result<Transaction, Error> {
        Transaction::begin(self.contexts.local(), reservation)
    }

    /// The metadata buffer cache.
    pub fn buffers(&self) -> &Arc<BufferCache> {
        &self.shared.cache
    }

    /// Makes all committed changes stable. This does not cover writes outside the log, such as file data: the caller
    /// flushes the device for those first.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn force(&self) -> Result<(), Error> {
        self.force_to(self.shared.cil.progress.current())
    }

    /// Makes all checkpoints up to and including `checkpoint` stable. Concurrent callers share one push.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn force_to(&self, checkpoint: u64) -> Result<(), Error> {
        self.shared.force_to(checkpoint)
    }

    /// Makes all committed changes stable and waits until the blocks that they freed can be reused: no metadata write
    /// over them is in flight.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn flush_busy(&self) -> Result<(), Error> {
        CommitTarget::flush_busy(&*self.shared)
    }

    /// Makes all committed changes and all writes outside the log stable.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn force_all(&self) -> Result<(), Error> {
        let last = self.shared.note_unlogged_write();
        self.force()?;
        self.shared.flush_unlogged_writes(last)
    }

    /// Like [`force_all`](Self::force_all), but only up to `checkpoint`, the last one that
    /// [logged](super::ItemCore::logged_in) what must be stable, and to the [number](CommitTarget::note_unlogged_write)
    /// of a write outside the log. Later changes are not pushed. If all that is stable, there is no I/O.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn force_all_to(&self, checkpoint: u64, unlogged_write: u64) -> Result<(), Error> {
        if self.shared.without_journal {
            // Checkpoints are complete before they are stable.
            return self.force_all();
        }
        self.force_to(checkpoint)?;
        self.shared.flush_unlogged_writes(unlogged_write)
    }

    /// The cause of the shutdown; `None` before one.
    pub fn shut_down_cause(&self) -> Option<Arc<str>> {
        self.shared.cause()
    }

    /// Writes back all metadata that the log holds.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn push_all(&self) -> Result<(), Error> {
        self.force()?;
        self.shared.push_all()
    }

    /// Writes back all committed changes of one buffer, which no other thread changes meanwhile.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn push_buffer(&self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        self.force()?;
        self.shared.push_buffer(buffer)
    }

    /// Writes back all metadata, marks the log clean and ends the threads. No transaction is open or will be opened.
    ///
    /// # Errors
    /// [`Error::ShutDown`]; the log is then left for recovery.
    pub fn unmount(&self) -> Result<(), Error> {
        *self.shared.covering.lock() = false;
        let result = self.empty().and_then(|()| self.write_unmount_record());
        self.stop();
        result
    }

    /// Ends like a power cut: only writes already in flight complete, and recovery finds the rest. Drops all items, and
    /// with them their references to this log. Does nothing after [`Log::unmount`].
    pub fn abandon(&self) {
        self.shared.shut_down("the log was closed without an unmount");
        self.stop();
        self.shared.cil.forget();
        self.shared.ail.forget();
    }

    /// Writes back until the AIL is empty. No change is made meanwhile.
    fn empty(&self) -> Result<(), Error> {
        self.push_all()?;
        while !self.shared.ail.is_empty() {
            // An item that kept its LSN although it was logged again has moved to the newer LSN.
            self.shared.push_all()?;
        }
        Ok(())
    }

    fn write_unmount_record(&self) -> Result<(), Error> {
        let iclogs = &self.shared.iclogs;
        self.shared.write_iclogs_inline();
        iclogs.drain();
        self.shared.data.flush()?;
        let mut buffer = iclogs.acquire().map_err(|shutdown| self.shared.fail(shutdown))?;
        checkpoint_writer::unmount(&mut buffer);
        iclogs.submit(buffer, true, None);
        self.shared.write_iclogs_inline();
        iclogs.drain();
        self.shared.check()
    }

    fn stop(&self) {
        self.shared.write_iclogs_inline();
        self.shared.stop();
        self.shared.threads.join();
    }

    /// The journal's counters.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.statistics()
    }
}

impl CommitTarget for Log {
    fn begin(&self, reservation: LogReservation) -> Result<Ticket, Error> {
        self.shared.begin(reservation)
    }

    fn roll(&self, ticket: &mut Ticket) -> Result<(), Error> {
        self.shared.roll(ticket)
    }

    fn commit(&self, ticket: &mut Ticket, commits: TransactionItems<'_, '_>) -> Result<(), Error> {
        CommitTarget::commit(&*self.shared, ticket, commits)
    }

    fn end(&self, ticket: Ticket) {
        self.shared.end(ticket);
    }

    fn note_unlogged_write(&self) -> u64 {
        self.shared.note_unlogged_write()
    }

    fn unlogged_writes(&self) -> u64 {
        self.shared.unlogged_writes()
    }

    fn force(&self) -> Result<(), Error> {
        Log::force(self)
    }

    fn flush_busy(&self) -> Result<(), Error> {
        Log::flush_busy(self)
    }

    fn is_near_tail(&self, lsn: Lsn) -> bool {
        self.shared.is_near_tail(lsn)
    }

    fn intent_id(&self) -> u64 {
        self.shared.intent_id()
    }

    fn shut_down(&self, cause: &str) {
        self.shared.shut_down(cause);
    }

    fn request_commit(&self) {
        self.shared.request_commit();
    }

    fn request_writeback(&self) {
        self.shared.request_writeback();
    }

    fn check(&self) -> Result<(), Error> {
        self.shared.check()
    }
}

impl Drop for Log {
    /// Without [`Log::unmount`]: only writes in flight complete, and recovery finds the rest.
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
