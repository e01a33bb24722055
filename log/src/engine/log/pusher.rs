//! The thread that moves the tail: it writes home what the log holds longest.
//!
//! | what an item says | then |
//! |---|---|
//! | it is in the batch | it leaves the list when it is written, unless it was logged again meanwhile |
//! | it is pinned | the checkpoint that holds it is pushed, and the item tried again |
//! | it is locked | it is tried again |
//! | it is clean | it leaves the list |
//! | it waits: an intent | it leaves the list when its done item is stable |
//!
//! An item whose owner waits for log space while it has it locked cannot be flushed; but it was logged again before the
//! wait, so a push moves it away from the tail.
//!
//! # Locking
//! None over a flush or a transfer.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use base::Lsn;
use base::prefetch::prefetch;

use super::shared::Shared;
use crate::engine::ail::Placed;
use crate::engine::buffer::{Buffer, settle};
use crate::engine::error::Error;
use crate::engine::home::{Flush, WriteBatch};
use crate::engine::stats::Counters;

/// Items of a batch.
const BATCH_ITEMS: usize = 1024;
/// How many items ahead memory is asked for: all of an inode, as all of it is copied.
const AHEAD: usize = 4;
/// Pause where nothing could be done at once.
const PAUSE: Duration = Duration::from_millis(2);
/// Pause where nothing is to be done.
const IDLE: Duration = Duration::from_secs(3600);

/// How long somebody who waits for an empty list sleeps before looking again.
const PATIENCE: Duration = Duration::from_millis(10);
/// A target beyond all items.
const EVERYTHING: Lsn = Lsn(u64::MAX);

/// What came of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Nothing lies before the target.
    Nothing,
    /// Something was written.
    Wrote,
    /// Nothing could be written; `pinned`: because a checkpoint has it.
    Stuck { pinned: bool },
}

impl Shared {
    /// What the thread does until it is stopped.
    pub fn push_home_loop(&self) {
        let mut pause = IDLE;
        while self.home.wait(pause) {
            pause = if self.is_shut_down() { IDLE } else { self.push_home() };
        }
    }

    /// Writes home as long as that is wanted and possible; gives how long to wait.
    fn push_home(&self) -> Duration {
        let mut pass = self.pass(self.target());
        if pass == Pass::Nothing && self.grant.is_waited_for() {
            pass = self.pass(EVERYTHING);
        }
        match pass {
            Pass::Wrote => Duration::ZERO,
            Pass::Nothing if !self.grant.is_waited_for() => IDLE,
            Pass::Stuck { pinned: false } if !self.grant.is_waited_for() => PAUSE,
            // What holds the space is not yet in the list, or was logged again: that must become stable first.
            Pass::Nothing | Pass::Stuck { .. } => {
                self.background.ring();
                PAUSE
            }
        }
    }

    /// Writes home everything that is in the list, and waits for it. Whoever commits meanwhile makes it last longer.
    pub fn push_all(&self) -> Result<(), Error> {
        while self.is_alone() && self.pass(EVERYTHING) == Pass::Wrote {
            self.check()?;
        }
        while !self.ail.is_empty() {
            self.check()?;
            self.want_all();
            self.emptied.wait(PATIENCE);
        }
        self.check()
    }

    /// Writes home what changed in one buffer, and waits for it; nobody keeps changing it meanwhile.
    pub fn push_buffer(&self, buffer: &Arc<Buffer>) -> Result<(), Error> {
        loop {
            self.check()?;
            let mut content = buffer.lock();
            settle(&mut content);
            let is_home = !content.is_dirty();
            drop(content);
            if is_home {
                return Ok(());
            }
            if !self.is_alone() || self.pass(EVERYTHING) != Pass::Wrote {
                self.want_all();
                self.emptied.wait(PATIENCE);
            }
        }
    }

    /// From now on everything is written home, until there is nothing.
    pub fn want_all(&self) {
        self.wanted_tail.store(u64::MAX, SeqCst);
        self.need_threads();
        self.home.ring();
    }

    /// Up to where items should be written home.
    fn target(&self) -> Lsn {
        match self.wanted_tail.load(SeqCst) {
            u64::MAX => EVERYTHING,
            wanted => self.iclogs.ring().lsn(wanted),
        }
    }

    fn pass(&self, target: Lsn) -> Pass {
        let items = self.ail.take(target, BATCH_ITEMS);
        if items.is_empty() {
            if target == EVERYTHING && self.ail.is_empty() {
                let _ = self.wanted_tail.compare_exchange(u64::MAX, self.grant.tail(), SeqCst, SeqCst);
                self.emptied.ring();
            }
            return Pass::Nothing;
        }
        let mut batch = WriteBatch::new(&*self.data);
        let (mut pinned, mut clean, mut back) = (false, Vec::new(), Vec::new());
        let mut items = items.into_iter();
        while let Some((item, lsn)) = items.next() {
            if let Some((later, _)) = items.as_slice().get(AHEAD) {
                prefetch(&**later);
            }
            match Arc::clone(&item).flush(&mut batch) {
                Flush::Queued => {}
                Flush::Clean => clean.push((item, lsn)),
                Flush::Failed => {
                    self.shut_down(
                        "a metadata block could not be read in order to be written (the device fails)",
                    );
                    return Pass::Nothing;
                }
                how => {
                    pinned |= how == Flush::Pinned || item.core().is_pinned();
                    back.push((item, lsn));
                }
            }
        }
        self.ail.put_back(back.into_iter());
        if batch.is_empty() && clean.is_empty() {
            return Pass::Stuck { pinned };
        }
        // What was given up half way can be in the batch, but only since the volume was shut down for it.
        if self.is_shut_down() {
            return Pass::Nothing;
        }
        self.write(batch, &clean);
        Pass::Wrote
    }

    /// Writes a batch; what it carried leaves the list, and so do `clean` items.
    fn write(&self, batch: WriteBatch<'_>, clean: &[Placed]) {
        Counters::add(&self.counters.home_buffers, batch.len() as u64);
        let (carried, result) = batch.write(self.ail.tail());
        self.home_written.fetch_add(1, SeqCst);
        for carried in &carried {
            carried.item.written(result.is_ok());
        }
        if let Err(error) = result {
            self.shut_down(&format!(
                "{error} (a change that is in the log could not be written to its place)"
            ));
            return;
        }
        let written = carried.iter().filter_map(|carried| Some((&carried.item, carried.lsn?)));
        let clean = clean.iter().map(|(item, lsn)| (item, *lsn));
        self.tail_is(self.ail.remove(written.chain(clean)));
    }
}
