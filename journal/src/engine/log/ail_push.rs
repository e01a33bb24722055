//! The thread that moves the tail by writing back the oldest items of the AIL (`xfsaild` in Linux).
//!
//! | result of pushing an item | action |
//! |---|---|
//! | queued for writeback | it leaves the AIL when it is written, unless it was logged again meanwhile |
//! | pinned | the checkpoint that contains it is pushed, and the item tried again |
//! | locked | it is tried again |
//! | clean | it leaves the AIL |
//! | its buffer was not read | the buffer is read after the batch is written, and the item tried again |
//! | an intent | it leaves the AIL when its done item is stable |
//!
//! An item whose owner holds its lock and waits for log space cannot be pushed. But the owner logged it again before
//! waiting, so a push of the CIL moves it away from the tail.
//!
//! # Locking
//! One pass at a time, under `Writeback`. No other lock is held during device I/O. A thread that waits for a pass holds
//! at most the lock of rank `Volume`.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use base::Lsn;
use base::prefetch::prefetch;

use super::shared::LogShared;
use crate::engine::ail::AilEntry;
use crate::engine::buffer::{Buffer, settle};
use crate::engine::stats::LogCounters;
use crate::engine::tuning::{
    IDLE_PAUSE, MAX_STUCK_PAUSE, PREFETCH_COPIES, PUSH_BYTES, PUSH_ITEMS, PUSH_ITEMS_LEAST, STUCK_PAUSE,
};
use crate::engine::writeback::{DelwriQueue, PushResult};
use error::Error;

/// A target beyond all items.
const EVERYTHING: Lsn = Lsn(u64::MAX);

/// Result of one writeback pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushOutcome {
    /// No item lies before the target.
    Nothing,
    /// Something was written, or read so that the next pass can write it.
    Wrote,
    /// Nothing could be written; `pinned`: because a checkpoint contains it.
    Stuck { pinned: bool },
}

/// How many items a pass takes. A buffer that must be read before it is written is written by the next pass. If the
/// buffer cache is smaller than what one pass reads, the first buffers may be evicted by then. So a pass that reads and
/// writes nothing makes the next one smaller, down to one item. Items whose buffers were read are taken first.
///
/// The buffers of a batch are copied, so it is smaller if there is little memory.
#[derive(Clone, Copy, Debug)]
pub struct BatchSize {
    items: usize,
    most: usize,
}

impl BatchSize {
    /// The size of the first batch, for metadata buffers that may hold so many bytes.
    pub fn of_memory(bytes: u64) -> Self {
        let most =
            usize::try_from(bytes / PUSH_BYTES).unwrap_or(PUSH_ITEMS).clamp(PUSH_ITEMS_LEAST, PUSH_ITEMS);
        Self { items: most, most }
    }

    fn passed(&mut self, wrote: bool, read: bool) {
        self.items = match read && !wrote {
            true => (self.items / 4).max(1),
            false => (self.items * 2).min(self.most),
        };
    }
}

impl LogShared {
    /// The thread's main loop; returns when it is stopped.
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

    /// Runs a pass; returns how long to wait for the next one: `stuck` if nothing could be written.
    fn ail_push(&self, stuck: Duration) -> Duration {
        let mut pass = self.pass(self.target());
        if pass == PushOutcome::Nothing && self.has_waiters() {
            pass = self.pass(EVERYTHING);
        }
        match pass {
            PushOutcome::Wrote => Duration::ZERO,
            PushOutcome::Nothing if !self.has_waiters() => IDLE_PAUSE,
            PushOutcome::Stuck { pinned: false } if !self.has_waiters() => stuck,
            // The items that hold the space are not yet in the AIL, or were logged again: that must become stable
            // first.
            PushOutcome::Nothing | PushOutcome::Stuck { .. } => {
                self.cil_notify.notify();
                stuck
            }
        }
    }

    /// Writes back all items of the AIL and waits for it. An item that is logged again meanwhile may stay, behind all
    /// that were there: so a steady load does not prolong this.
    pub fn push_all(&self) -> Result<(), Error> {
        if let Some(newest) = self.ail.newest() {
            while self.runs_inline() && self.pass(newest) == PushOutcome::Wrote {
                self.check()?;
            }
            self.request_ail_push(Some(newest));
            self.ail.wait_past(newest);
        }
        self.in_flight.wait_released();
        self.check()
    }

    /// Writes back all changes of one buffer and waits for it. No other thread keeps changing the buffer.
    pub fn push_buffer(&self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        loop {
            self.push_all()?;
            let mut content = buffer.lock();
            settle(&mut content);
            if !content.is_dirty() {
                return Ok(());
            }
            drop(content);
            // It was logged again unchanged, to cover an idle log.
            self.force_to(self.cil.progress.current())?;
        }
    }

    /// Requests writeback of all items up to `newest`.
    pub fn request_ail_push(&self, newest: Option<Lsn>) {
        let Some(newest) = newest.filter(|newest| self.ail.reaches(*newest)) else { return };
        self.push_target.fetch_max(self.iclogs.log_device().position(newest), SeqCst);
        self.ensure_threads();
        self.ail_notify.notify();
    }

    /// Requests writeback of all items, and a push of what was committed, if there are threads for that. Does not wait.
    pub fn request_writeback(&self) {
        if !self.runs_inline() {
            self.cil_notify.notify();
            self.request_ail_push(self.ail.newest());
        }
    }

    /// The LSN up to which items should be written back.
    fn target(&self) -> Lsn {
        self.iclogs.log_device().lsn(self.push_target.load(SeqCst))
    }

    fn pass(&self, target: Lsn) -> PushOutcome {
        let mut batch_size = self.writeback.lock();
        let items = self.ail.take(target, batch_size.items);
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
                    // The done item of an intent may wait to be pushed.
                    pinned |= matches!(how, PushResult::Pinned | PushResult::AwaitingDone)
                        || entry.item.core().is_pinned();
                    let list = if how == PushResult::NotRead { &mut unread } else { &mut back };
                    list.push(entry);
                }
            }
        }
        self.ail.put_back(back.into_iter());
        // The buffers that are read for them below are still in the cache then.
        self.ail.put_first(unread.iter().cloned());
        // The queue can contain changes of a failed transaction, but only after that has shut the volume down.
        if self.is_shut_down() {
            return PushOutcome::Nothing;
        }
        let writes = !batch.is_empty() || !clean.is_empty();
        if writes {
            self.write(batch, &clean);
            self.cache.memory().budget().became_clean();
        }
        let has_read = self.read_unread(&unread);
        batch_size.passed(writes, has_read);
        if writes || has_read { PushOutcome::Wrote } else { PushOutcome::Stuck { pinned } }
    }

    /// Reads the buffers of items that could not be written without them; returns whether any was read. The batch is
    /// written and all its locks are released, so a slow read delays only threads that need the same buffer.
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

    /// Writes a batch. Its items leave the AIL, and so do the `clean` items.
    fn write(&self, batch: DelwriQueue<'_>, clean: &[AilEntry]) {
        LogCounters::add(&self.counters.written_buffers, batch.len() as u64);
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
        self.publish_tail(self.ail.remove(written.chain(clean)));
    }
}
