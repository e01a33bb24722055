//! The running journal of one volume.
//!
//! | part | does |
//! |---|---|
//! | [`Log`] | what transactions use: reserve, commit, roll, force |
//! | [`Options`] | sizes and numbers of things |
//! | `target` | what transactions call |
//! | `shared` | what the threads of the journal share; shutting down |
//! | `pusher` | the thread that moves the tail: writes home what the log holds longest |
//! | `background` | the thread that pushes checkpoints that became large, or old |
//! | `crew` | the threads themselves, and who does their work while there are none |
//!
//! # Invariants
//! - After a shutdown nothing is written any more, and nobody waits: every call returns [`Error::ShutDown`].
//! - The threads end with the last reference to the [`Log`], or at unmounting.
//!
//! # Locking
//! None of its own over any call of the parts.

mod ail_push;
mod background;
mod commit_target;
mod notify;
mod shared;
mod threads;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::Lsn;
use base::percpu;
use block::Device;
use format::superblock::Superblock;

use self::shared::{LogParameters, LogShared};
use super::buffer::Buffer;
use super::cache::BufferCache;
use super::commit_target::{BusyExtentHook, CommitTarget, LogReservation, Ticket, TransactionContexts};
use super::defer::RecoveredIntent;
use super::error::Error;
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

/// How large and how many.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shards of the committed item list; `None`: one for each CPU. One alone is how it was before Linux 6.0.
    pub shards: Option<usize>,
    /// Log buffers: 2 to 8.
    pub buffers: usize,
    /// Bytes of each; `None`: 32 KiB, or the log's stripe unit if that is more.
    pub buffer_bytes: Option<u32>,
    /// Threads that write them.
    pub writers: usize,
    /// After so long without a push what was committed is pushed, and an idle log is covered.
    pub interval: Duration,
    /// The threads run from the beginning. Without, whoever waits for the log does their work, and they begin when
    /// somebody needs them who cannot: for who opens a volume, does little and closes it. Nothing is pushed for its age
    /// until then.
    pub background: bool,
    /// What changes is not recorded in the log: it is stable when it is at home, and after a power cut the volume is no
    /// volume. For one that nobody sees before it is unmounted, which still ends the log with its one record.
    pub without_journal: bool,
    /// Bytes of metadata blocks that are kept in memory, beyond those that must be.
    pub cache_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: None,
            buffers: 8,
            buffer_bytes: None,
            writers: 2,
            interval: PUSH_INTERVAL,
            background: true,
            without_journal: false,
            cache_bytes: 256 << 20,
        }
    }
}

/// What the log on the disk tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Where the next record goes.
    pub head: Lsn,
    /// The oldest record that a recovery would read; the head, where the log is clean.
    pub tail: Lsn,
    /// The oldest record that is still needed: that of the oldest intent that nobody has answered; the head, where
    /// there is none.
    pub needed: Lsn,
}

impl LogBounds {
    /// Those of a log that was opened, before or after its recovery.
    pub fn of(journal: &Journal<'_>) -> Self {
        let tail = journal.dirty().map_or(journal.head(), |dirty| dirty.tail);
        Self { head: journal.head(), tail, needed: journal.head() }
    }

    /// The same where recovery left these intents unanswered: their records stay until they are.
    #[must_use]
    pub fn keeping(self, intents: impl Iterator<Item = Lsn>) -> Self {
        Self { needed: intents.min().unwrap_or(self.head), ..self }
    }
}

/// The running journal.
#[derive(Debug)]
pub struct Log {
    shared: Arc<LogShared>,
    /// They refer to `shared` alone, so that the threads end though transactions were left open.
    contexts: TransactionContexts,
}

impl Log {
    /// Starts the journal of a volume whose log is clean, or was recovered.
    ///
    /// # Errors
    /// Those of [`Journal::open`]; [`Error::Log`] where the log is dirty, or the options do not fit it.
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

    /// Starts the journal of a log that is clean, or everything in which was recovered and is stable at home.
    ///
    /// # Errors
    /// [`Error::Log`] where the options do not fit the log; those of the device.
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
        let sizes = LogSizes::new(log_device.bytes(), geometry.log_stripe_unit, options.buffer_bytes)?;
        let head = log_device.position(bounds.head);
        let stop = |shutdown: Shutdown| Error::log(format!("the log cannot be written: {shutdown}"));
        if bounds.tail == bounds.head {
            log_device.complete(bounds.head).map_err(stop)?;
        }
        if log_device.clear_ahead(head, log_device.room(bounds.head, bounds.tail)).map_err(stop)? {
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
            },
        );
        let cache = Arc::new(BufferCache::new(Arc::clone(&data), options.cache_bytes));
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
        let contexts = TransactionContexts::new(&target, &shared.cache);
        shared.threads.attach(&shared, options);
        let log = Arc::new(Self { shared, contexts });
        if options.background {
            log.shared.start_threads()?;
        }
        Ok(log)
    }

    /// Keeps an intent's record in the log until a transaction that [resumes](Transaction::resume) it has answered it:
    /// one that recovery found unanswered, and for which [`LogBounds::keeping`] made room. To be called before the
    /// first transaction. Until [`Log::intents_finished`], one thread alone begins transactions, and what the log has
    /// no space for is an error: it would wait for itself.
    pub fn add_recovered_intent(&self, lsn: Lsn, id: u64) -> RecoveredIntent {
        self.shared.recovering_intents.store(true, Relaxed);
        let adopted = RecoveredIntent::new(id);
        self.shared.ail.add_recovered_intent(adopted.item(), lsn);
        adopted
    }

    /// All intents that were adopted are answered.
    pub fn intents_finished(&self) {
        self.shared.recovering_intents.store(false, Relaxed);
    }

    /// Begins a transaction: waits for log space. The caller holds no lock that the tail may wait for.
    ///
    /// # Errors
    /// As [`CommitTarget::begin`].
    pub fn begin(&self, reservation: LogReservation) -> Result<Transaction, Error> {
        Transaction::begin_on(self.contexts.local(), reservation)
    }

    /// Where transactions begin.
    pub fn contexts(&self) -> &TransactionContexts {
        &self.contexts
    }

    /// The metadata blocks in memory.
    pub fn buffers(&self) -> &Arc<BufferCache> {
        &self.shared.cache
    }

    /// Makes everything stable that was committed so far. It says nothing of what was written past the log, such as the
    /// contents of files: whoever wrote that flushes the device first.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn force(&self) -> Result<(), Error> {
        self.force_to(self.shared.cil.progress.current())
    }

    /// Makes everything stable up to and with a checkpoint. Threads that ask at the same time share one push.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn force_to(&self, checkpoint: u64) -> Result<(), Error> {
        self.shared.force_to(checkpoint)
    }

    /// Makes everything stable that was committed so far, and returns when what that freed can be used again: no write
    /// over it is in flight.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn flush_busy(&self) -> Result<(), Error> {
        CommitTarget::flush_busy(&*self.shared)
    }

    /// The same as [`force`](Self::force), and everything that was written past the log, whether a change refers to it
    /// or not.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub fn force_all(&self) -> Result<(), Error> {
        self.force_all_to(self.shared.cil.progress.current())
    }

    /// The same up to a checkpoint: for who knows the last one that [logged](super::ItemCore::logged_in) what must be
    /// stable. What others changed since is not pushed for it.
    ///
    /// # Errors
    /// As [`force`](Self::force).
    pub fn force_all_to(&self, checkpoint: u64) -> Result<(), Error> {
        self.shared.note_unlogged_write();
        self.force_to(checkpoint)?;
        self.shared.flush_unlogged_writes()
    }

    /// The last checkpoint that is stable.
    pub fn stable(&self) -> u64 {
        self.shared.cil.progress.stable()
    }

    /// Whether the volume was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared.is_shut_down()
    }

    /// Why it was; `None` while it works.
    pub fn shut_down_cause(&self) -> Option<Arc<str>> {
        self.shared.cause()
    }

    /// Writes home everything that the log holds, and waits for it.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn push_all(&self) -> Result<(), Error> {
        self.force()?;
        self.shared.push_all()
    }

    /// Returns when all that was committed of one buffer, which nobody changes now, is in its place on the device.
    ///
    /// # Errors
    /// As [`push_all`](Self::push_all).
    pub fn push_buffer(&self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        self.force()?;
        self.shared.push_buffer(buffer)
    }

    /// Writes everything home and marks the log as clean. No transaction is open or will be opened. Ends the threads.
    ///
    /// # Errors
    /// [`Error::ShutDown`]; the log is then left as it is, for recovery.
    pub fn unmount(&self) -> Result<(), Error> {
        *self.shared.covering.lock() = false;
        let result = self.empty().and_then(|()| self.write_unmount_record());
        self.stop();
        result
    }

    /// Ends as a power cut would: nothing more is written than what is under way, and recovery finds the rest. What was
    /// to be written is let go, and with it whatever of that refers to this log. After [`Log::unmount`] nothing is left
    /// to end.
    pub fn abandon(&self) {
        self.shared.shut_down("it was closed");
        self.stop();
        self.shared.cil.forget();
        self.shared.ail.forget();
    }

    /// Writes home until nothing is left to be written. Nobody changes anything meanwhile.
    fn empty(&self) -> Result<(), Error> {
        self.push_all()?;
        while !self.shared.ail.is_empty() {
            // What kept its place, though it was logged again, has come to the newer one.
            self.shared.push_all()?;
        }
        Ok(())
    }

    fn write_unmount_record(&self) -> Result<(), Error> {
        let iclogs = &self.shared.iclogs;
        self.shared.write_iclogs_inline();
        iclogs.drain();
        self.shared.data.flush()?;
        let mut buffer = iclogs.acquire().map_err(|halt| self.shared.halt(halt))?;
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

    /// What was done so far.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.statistics()
    }

    /// Bytes of log that are spoken for: reserved, or still needed.
    pub fn used(&self) -> u64 {
        self.shared.grant.head().saturating_sub(self.shared.grant.tail())
    }

    /// Bytes that are reserved and not written: none while no transaction is open and nothing waits to be pushed.
    pub fn reserved(&self) -> u64 {
        self.shared.grant.drain_cpu_caches();
        self.shared.grant.head().saturating_sub(self.shared.iclogs.next())
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

    fn note_unlogged_write(&self) {
        self.shared.note_unlogged_write();
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

    fn check(&self) -> Result<(), Error> {
        self.shared.check()
    }
}

impl Drop for Log {
    /// Without [`Log::unmount`]: what is in flight is still written, nothing else is. Recovery finds the rest.
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
