//! The thread that moves the tail: it writes home what the log holds longest.
//!
//! | what an item says | then |
//! |---|---|
//! | it is in the batch | it leaves the list when it is written, unless it was logged again meanwhile |
//! | it is pinned | the checkpoint that holds it is pushed, and the item tried again |
//! | it is locked | it is tried again |
//! | it is clean | it leaves the list |
//! | its place was not read | the place is read when the batch is written, and the item tried again |
//! | it waits: an intent | it leaves the list when its done item is stable |
//!
//! An item whose owner waits for log space while it has it locked cannot be flushed; but it was logged again before the
//! wait, so a push moves it away from the tail.
//!
//! # Locking
//! One pass at a time, under `Writeback`. No other lock is held over a transfer; who waits for a pass holds no lock but
//! that of the volume as a whole.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use base::Lsn;
use base::prefetch::prefetch;

use super::shared::LogShared;
use crate::engine::ail::AilEntry;
use crate::engine::buffer::{Buffer, settle};
use crate::engine::error::Error;
use crate::engine::stats::Counters;
use crate::engine::tuning::{IDLE_PAUSE, MAX_STUCK_PAUSE, PREFETCH_COPIES, PUSH_ITEMS, STUCK_PAUSE};
use crate::engine::writeback::{DelwriQueue, PushResult};

/// A target beyond all items.
const EVERYTHING: Lsn = Lsn(u64::MAX);

/// What came of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushOutcome {
    /// Nothing lies before the target.
    Nothing,
    /// Something was written, or read so that the next pass can write it.
    Wrote,
    /// Nothing could be written; `pinned`: because a checkpoint has it.
    Stuck { pinned: bool },
}

/// How many items a pass takes. A block that must be read before it can be written is written by the next pass. If the
/// buffer cache is smaller than what a pass reads, the first blocks may have been evicted by then. So a pass that reads
/// and writes nothing makes the next one smaller, down to one item. Items whose blocks were read are taken first.
#[derive(Clone, Copy, Debug)]
pub struct BatchSize(usize);

impl Default for BatchSize {
    fn default() -> Self {
        Self(PUSH_ITEMS)
    }
}

impl BatchSize {
    fn passed(&mut self, wrote: bool, read: bool) {
        self.0 = match read && !wrote {
            true => (self.0 / 4).max(1),
            false => (self.0 * 2).min(PUSH_ITEMS),
        };
    }
}

impl LogShared {
    /// What the thread does until it is stopped.
    pub fn ail_push_loop(&self) {
        let (mut pause, mut stuck) = (IDLE_PAUSE, STUCK_PAUSE);
        while self.ail_notify.wait(pause).is_some() {
            pause = match self.is_shut_down() {
                true => IDLE_PAUSE,
                false => self.ail_push(stuck),
            };
            stuck = if pause == stuck { MAX_STUCK_PAUSE.min(stuck * 2) } else { STUCK_PAUSE };
        }
    }

    /// Writes home as long as that is wanted and possible; gives how long to wait: `stuck` where nothing could be done.
    fn ail_push(&self, stuck: Duration) -> Duration {
        let mut pass = self.pass(self.target());
        if pass == PushOutcome::Nothing && self.grant.has_waiters() {
            pass = self.pass(EVERYTHING);
        }
        match pass {
            PushOutcome::Wrote => Duration::ZERO,
            PushOutcome::Nothing if !self.grant.has_waiters() => IDLE_PAUSE,
            PushOutcome::Stuck { pinned: false } if !self.grant.has_waiters() => stuck,
            // What holds the space is not yet in the list, or was logged again: that must become stable first.
            PushOutcome::Nothing | PushOutcome::Stuck { .. } => {
                self.cil_notify.notify();
                stuck
            }
        }
    }

    /// Writes home what is in the list, and waits for it. What is logged again meanwhile may be left in the list,
    /// behind all that was there: so a steady load does not make this last longer.
    pub fn push_all(&self) -> Result<(), Error> {
        if let Some(newest) = self.ail.newest() {
            while self.runs_inline() && self.pass(newest) == PushOutcome::Wrote {
                self.check()?;
            }
            self.request_push_to(Some(newest));
            self.ail.wait_past(newest);
        }
        self.in_flight.wait_released();
        self.check()
    }

    /// Writes home what changed in one buffer, and waits for it; nobody keeps changing it meanwhile.
    pub fn push_buffer(&self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        loop {
            self.push_all()?;
            let mut content = buffer.lock();
            settle(&mut content);
            if !content.is_dirty() {
                return Ok(());
            }
            drop(content);
            // It was logged again meanwhile, as it is, to cover an idle log.
            self.force_to(self.cil.progress.current())?;
        }
    }

    /// From now on what is in the list up to `newest` is written home.
    pub fn request_push_to(&self, newest: Option<Lsn>) {
        let Some(newest) = newest.filter(|newest| self.ail.reaches(*newest)) else { return };
        self.push_target.fetch_max(self.iclogs.log_device().position(newest), SeqCst);
        self.ensure_threads();
        self.ail_notify.notify();
    }

    /// Up to where items should be written home.
    fn target(&self) -> Lsn {
        self.iclogs.log_device().lsn(self.push_target.load(SeqCst))
    }

    fn pass(&self, target: Lsn) -> PushOutcome {
        let mut batch_size = self.writeback.lock();
        let items = self.ail.take(target, batch_size.0);
        if items.is_empty() {
            return PushOutcome::Nothing;
        }
        let mut batch = DelwriQueue::new(&*self.data);
        let (mut pinned, mut clean, mut back, mut unread) = (false, Vec::new(), Vec::new(), Vec::new());
        let mut items = items.into_iter();
        while let Some(entry) = items.next() {
            if let Some(next) = items.as_slice().get(PREFETCH_COPIES) {
                prefetch(&*next.item);
            }
            match Arc::clone(&entry.item).push(&mut batch) {
                PushResult::Queued => {}
                PushResult::Clean => clean.push(entry),
                how => {
                    // An intent's done item may wait to be pushed.
                    pinned |= matches!(how, PushResult::Pinned | PushResult::AwaitingDone)
                        || entry.item.core().is_pinned();
                    let list = if how == PushResult::NotRead { &mut unread } else { &mut back };
                    list.push(entry);
                }
            }
        }
        self.ail.put_back(back.into_iter());
        // As long as what is read for them now is in memory.
        self.ail.put_first(unread.iter().cloned());
        // What was given up half way can be in the batch, but only since the volume was shut down for it.
        if self.is_shut_down() {
            return PushOutcome::Nothing;
        }
        let writes = !batch.is_empty() || !clean.is_empty();
        if writes {
            self.write(batch, &clean);
        }
        let has_read = self.read_unread(&unread);
        batch_size.passed(writes, has_read);
        if writes || has_read { PushOutcome::Wrote } else { PushOutcome::Stuck { pinned } }
    }

    /// Reads the places of items that could not be written for want of them. The batch is written and all its locks are
    /// free: a slow read keeps nobody waiting but who wants the same block. Whether any was read.
    fn read_unread(&self, unread: &[AilEntry]) -> bool {
        let mut has_read = false;
        for AilEntry { item, .. } in unread {
            if self.is_shut_down() {
                return false;
            }
            match item.read_buffer() {
                Ok(read) => has_read |= read,
                Err(error) => {
                    self.shut_down(&format!(
                        "{error} (a metadata block must be read in order to be written)"
                    ));
                    return false;
                }
            }
        }
        has_read
    }

    /// Writes a batch; what it carried leaves the list, and so do `clean` items.
    fn write(&self, batch: DelwriQueue<'_>, clean: &[AilEntry]) {
        Counters::add(&self.counters.written_buffers, batch.len() as u64);
        let (carried, result) = batch.write(self.ail.tail(), &self.in_flight);
        self.metadata_writes.fetch_add(1, SeqCst);
        for carried in &carried {
            carried.item.write_done(result.is_ok());
        }
        self.in_flight.end(|held| self.released(held));
        if let Err(error) = result {
            self.shut_down(&format!(
                "{error} (a change that is in the log could not be written to its place)"
            ));
            return;
        }
        let written = carried.iter().filter_map(|carried| Some((&carried.item, carried.lsn?)));
        let clean = clean.iter().map(|entry| (&entry.item, entry.lsn));
        self.tail_is(self.ail.remove(written.chain(clean)));
    }
}
