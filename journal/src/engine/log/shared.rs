//! State shared by the journal's threads, and shutdown.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use base::lock::{Mutex, Rank};
use base::{AgBlock, AgNumber, Lsn};
use block::Device;
use crossbeam_utils::CachePadded;
use format::Geometry;

use super::ail_push::BatchSize;
use super::intent_ids::IntentIds;
use super::notify::Notify;
use super::threads::LogThreads;
use crate::engine::ail::Ail;
use crate::engine::cache::BufferCache;
use crate::engine::cil::{Checkpoint, Cil};
use crate::engine::commit_target::{BusyExtent, BusyExtentHook};
use crate::engine::grant::{GrantHead, TailPusher};
use crate::engine::iclog::{IclogCallbacks, Iclogs};
use crate::engine::inflight_writes::InflightWrites;
use crate::engine::item::{AfterCommit, prefetch_next};
use crate::engine::shutdown::Shutdown;
use crate::engine::stats::{LogCounters, LogStatistics};
use error::Error;

/// Parameters of a journal.
pub struct LogParameters {
    pub geometry: Geometry,
    /// LSN of the next record.
    pub head: Lsn,
    /// Shards of the CIL.
    pub shards: usize,
    pub without_journal: bool,
    pub hook: Option<Arc<dyn BusyExtentHook>>,
}

/// The parts of a journal, shared by its threads.
pub struct LogShared {
    pub data: Arc<dyn Device>,
    pub cache: Arc<BufferCache>,
    pub geometry: Geometry,
    pub grant: GrantHead,
    pub iclogs: Iclogs,
    pub cil: Cil,
    pub ail: Ail,
    pub counters: LogCounters,
    /// Checkpoints complete without a log record.
    pub without_journal: bool,
    hook: Option<Arc<dyn BusyExtentHook>>,
    /// Every read checks it, so it is beside nothing that changes.
    shut: CachePadded<AtomicBool>,
    cause: OnceLock<Arc<str>>,
    /// Recovered intents hold the tail back until the only running thread has finished them.
    pub recovering_intents: AtomicBool,
    /// Source of identifiers of intents.
    pub intent_ids: IntentIds,
    /// Number of metadata writeback batches, and how many of them a flush has covered.
    pub metadata_writes: AtomicU64,
    metadata_writes_flushed: AtomicU64,
    /// Number of blocks written outside the log, and how many of them a flush has covered.
    pub unlogged_writes: AtomicU64,
    unlogged_writes_flushed: AtomicU64,
    /// Position that the tail should reach.
    pub push_target: AtomicU64,
    /// Wakes the metadata writeback thread.
    pub ail_notify: Notify,
    /// Held during one batch of metadata writeback, until the device has completed it.
    pub writeback: Mutex<BatchSize>,
    /// The writes of that batch.
    pub in_flight: InflightWrites,
    /// Wakes the thread that pushes checkpoints.
    pub cil_notify: Notify,
    /// Number of commits at the last request to push them.
    requested_commits: AtomicU64,
    /// Threads that wait until less metadata is dirty.
    pub memory_waiters: AtomicUsize,
    /// Whether an idle log is still covered: not after an unmount has begun, as the unmount record must be the last.
    pub covering: Mutex<bool>,
    /// The threads.
    pub threads: LogThreads,
}

impl LogShared {
    pub fn new(
        data: Arc<dyn Device>,
        cache: Arc<BufferCache>,
        grant: GrantHead,
        iclogs: Iclogs,
        parameters: LogParameters,
    ) -> Self {
        let LogParameters { geometry, head, shards, without_journal, hook } = parameters;
        let cil = Cil::new(*iclogs.sizes(), shards, cache.memory());
        let batch = BatchSize::of_memory(cache.memory().part());
        Self {
            data,
            cache,
            geometry,
            grant,
            iclogs,
            cil,
            ail: Ail::new(head),
            counters: LogCounters::default(),
            without_journal,
            hook,
            shut: CachePadded::new(AtomicBool::new(false)),
            cause: OnceLock::new(),
            recovering_intents: AtomicBool::new(false),
            intent_ids: IntentIds::new(head),
            metadata_writes: AtomicU64::new(0),
            metadata_writes_flushed: AtomicU64::new(0),
            unlogged_writes: AtomicU64::new(0),
            unlogged_writes_flushed: AtomicU64::new(0),
            push_target: AtomicU64::new(0),
            ail_notify: Notify::new(),
            writeback: Mutex::new(Rank::Writeback, batch),
            in_flight: InflightWrites::default(),
            cil_notify: Notify::new(),
            requested_commits: AtomicU64::new(0),
            memory_waiters: AtomicUsize::new(0),
            covering: Mutex::new(Rank::Volume, true),
            threads: LogThreads::new(),
        }
    }

    /// Whether threads wait for metadata to be written back: for log space, or for memory.
    pub fn has_waiters(&self) -> bool {
        self.grant.has_waiters() || self.memory_waiters.load(SeqCst) > 0
    }

    pub fn is_shut_down(&self) -> bool {
        self.shut.load(SeqCst)
    }

    pub fn check(&self) -> Result<(), Error> {
        if self.is_shut_down() { Err(self.shutdown_error()) } else { Ok(()) }
    }

    /// The cause of the shutdown.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.cause.get().filter(|_| self.is_shut_down()).cloned()
    }

    fn shutdown_error(&self) -> Error {
        let cause = self.cause.get().cloned();
        Error::ShutDown { cause: cause.unwrap_or_else(|| "it is being shut down".into()) }
    }

    /// Shuts down if `shutdown` has a new cause; returns the error for the caller.
    pub fn fail(&self, shutdown: Shutdown) -> Error {
        if let Shutdown::Because(cause) = shutdown {
            self.shut_down(&cause);
        }
        self.shutdown_error()
    }

    /// Stops all writing and wakes all waiting threads.
    pub fn shut_down(&self, cause: &str) {
        // The first cause is kept: later errors follow from it.
        self.cause.get_or_init(|| cause.into());
        self.shut.store(true, SeqCst);
        self.grant.close();
        self.iclogs.close();
        self.cil.progress.close();
        self.ail_notify.notify();
        self.ail.close();
        self.in_flight.close();
        self.cil_notify.notify();
    }

    /// Lets all threads end once nothing is in flight.
    pub fn stop(&self) {
        self.ail_notify.stop();
        self.cil_notify.stop();
        self.iclogs.stop();
    }

    /// Pushes all changes committed up to a checkpoint.
    pub fn push(&self, upto: u64) -> Result<(), Error> {
        self.check()?;
        if self.without_journal {
            self.cil.complete_without_journal(upto, &self.iclogs, &self.grant, self);
            return Ok(());
        }
        self.cil.push(upto, &self.iclogs, &self.grant, self).map_err(|shutdown| self.fail(shutdown))
    }

    pub fn force_to(&self, checkpoint: u64) -> Result<(), Error> {
        let progress = &self.cil.progress;
        if progress.stable() >= checkpoint {
            return self.check();
        }
        LogCounters::add(&self.counters.forces, 1);
        progress.throttle(checkpoint).map_err(|shutdown| self.fail(shutdown))?;
        self.push(checkpoint)?;
        self.write_iclogs_inline();
        // If nothing was committed, the current checkpoint is empty and the one before counts.
        progress.wait_stable(checkpoint.min(progress.current() - 1)).map_err(|shutdown| self.fail(shutdown))
    }

    /// Asks the background thread to push a checkpoint.
    pub fn request_cil_push(&self, sequence: u64) {
        if self.cil.progress.current() <= sequence {
            self.ensure_threads();
            self.cil_notify.notify();
        }
    }

    /// Asks the background thread to make all committed changes stable, if there are any since the last request, and
    /// data that was written outside the log.
    pub fn request_commit(&self) {
        let commits = self.cil.commits();
        if self.requested_commits.swap(commits, SeqCst) != commits || self.has_unlogged_writes() {
            self.cil_notify.notify();
        }
    }

    /// Publishes the new tail to threads that wait for log space.
    pub fn publish_tail(&self, tail: Lsn) {
        self.grant.advance_tail(self.iclogs.log_device().position(tail));
    }

    pub fn statistics(&self) -> LogStatistics {
        let written = self.iclogs.written();
        LogStatistics {
            commits: self.cil.commits(),
            pushes: self.cil.progress.current() - 1,
            forces: LogCounters::get(&self.counters.forces),
            records: written.records,
            bytes: written.bytes,
            flushes: written.flushes,
            ail_items: self.ail.len() as u64,
            written_buffers: LogCounters::get(&self.counters.written_buffers),
            space_waits: self.grant.waits(),
            throttled: LogCounters::get(&self.counters.throttled),
        }
    }
}

impl LogShared {
    /// Byte range of an extent on the data device.
    fn place(&self, extent: &BusyExtent) -> Range<u64> {
        let geometry = &self.geometry;
        let start = extent.start.get();
        // Of an AG of the volume, which has less than 2^32 blocks.
        let ag = AgNumber((start >> geometry.ag_block_log) as u32);
        let block = AgBlock((start & ((1 << geometry.ag_block_log) - 1)) as u32);
        let offset = geometry.ag_block_offset(ag, block);
        offset..offset + (u64::from(extent.blocks) << geometry.block_log)
    }

    /// Reports freed blocks that can be reused.
    pub fn released(&self, extents: &[BusyExtent]) {
        if let (Some(hook), false) = (&self.hook, extents.is_empty()) {
            hook.clear_busy(extents);
        }
    }

    /// Flushes writes outside the log up to a number, unless a log record has done so.
    pub fn flush_unlogged_writes(&self, last: u64) -> Result<(), Error> {
        if self.unlogged_writes_flushed.load(SeqCst) < last {
            self.flush_data(true).map_err(|shutdown| self.fail(shutdown))?;
        }
        Ok(())
    }
}

impl IclogCallbacks for LogShared {
    fn tail(&self) -> Lsn {
        self.ail.tail()
    }

    fn flush_data(&self, always: bool) -> Result<bool, Shutdown> {
        // The writeback thread counts before the tail moves past its writes, so this count covers the caller's tail.
        let written = self.metadata_writes.load(SeqCst);
        if !always && self.metadata_writes_flushed.load(SeqCst) >= written {
            return Ok(false);
        }
        let unlogged_writes = self.unlogged_writes.load(SeqCst);
        self.data.flush()?;
        self.metadata_writes_flushed.fetch_max(written, SeqCst);
        self.unlogged_writes_flushed.fetch_max(unlogged_writes, SeqCst);
        Ok(true)
    }

    fn has_unlogged_writes(&self) -> bool {
        self.unlogged_writes_flushed.load(SeqCst) < self.unlogged_writes.load(SeqCst)
    }

    fn last_unlogged_write(&self) -> u64 {
        self.unlogged_writes.load(SeqCst)
    }

    fn unlogged_writes_stable(&self, last: u64) {
        self.unlogged_writes_flushed.fetch_max(last, SeqCst);
    }

    fn completed(&self, checkpoint: Checkpoint, ok: bool) {
        self.cil.completed(&checkpoint);
        let mut rest = checkpoint.items.iter();
        while let Some(item) = rest.next() {
            prefetch_next(rest.as_slice());
            item.core().unpin();
        }
        let (Some(start), true) = (checkpoint.start, ok) else { return };
        let lsn = self.iclogs.log_device().lsn(start);
        let mut inserted = Vec::with_capacity(checkpoint.items.len());
        let mut unneeded = Vec::new();
        for item in checkpoint.items {
            match item.committed(lsn) {
                AfterCommit::Insert => inserted.push(item),
                AfterCommit::Remove => unneeded.push(item),
                AfterCommit::ReleaseIntent(intent) => unneeded.push(intent),
            }
        }
        // Before the items leave the AIL: a thread that waits for the AIL also waits for extents held back then.
        let usable = self.in_flight.hold_back(checkpoint.busy, |extent| self.place(extent));
        let commit = self.iclogs.log_device().lsn(checkpoint.commit);
        self.publish_tail(self.ail.complete(lsn, commit, &inserted, &unneeded));
        self.released(&usable);
        self.cil.progress.became_stable(checkpoint.sequence);
        if self.has_waiters() {
            self.ail_notify.notify();
        }
    }

    fn failed(&self, why: Shutdown) {
        self.fail(why);
    }
}

impl TailPusher for LogShared {
    fn push_tail_to(&self, position: u64) {
        if self.push_target.fetch_max(position, SeqCst) < position || self.grant.has_waiters() {
            self.ensure_threads();
            self.ail_notify.notify();
        }
    }
}

impl std::fmt::Debug for LogShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogShared")
            .field("grant", &self.grant)
            .field("cil", &self.cil)
            .finish_non_exhaustive()
    }
}
