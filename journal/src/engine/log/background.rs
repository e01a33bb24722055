//! The thread that pushes large or old checkpoints, and covers an idle log.
//!
//! When all metadata is written back, the last record of the log can still contain an older tail: recovery would then
//! replay changes that are in place. So an idle log is *covered* by two checkpoints, each of which logs a part of the
//! superblock unchanged. The first records that everything before it is written back, the second that the first is.
//!
//! | an idle log | action |
//! |---|---|
//! | has changes that are committed and not pushed | push them |
//! | has items that are not written back | request metadata writeback |
//! | is fully written back and not covered | log a superblock |
//!
//! A log that is in use all the time does not become idle: then metadata writeback is requested as often.
//!
//! # Changes that become stable by themselves
//! With a commit interval, changes are pushed that long after a request, or another push, and again as long as there
//! are new ones. An idle log is not looked at for it: the first request after a pause comes from the flusher, which
//! looks for changes of metadata when it looks for dirty data, and when it has written that.
//!
//! # Invariants
//! The thread waits neither for log space nor for a lock that a transaction may hold: transactions wait for its pushes.
//! Nothing is logged once an unmount has begun, as the unmount record must be the last. So each step holds `covering`.

use std::sync::Arc;
use std::time::Duration;

use base::Daddr;
use base::lock::Rank;
use base::thread::elapsed;
use format::damage::Damage;
use format::log::buffer::CHUNK_BYTES;

use super::shared::LogShared;
use crate::engine::buffer::DiskExtent;
use crate::engine::commit_target::{CommitTarget, LogReservation, TransactionContext};
use crate::engine::transaction::Transaction;
use crate::engine::tuning::{COVER_RECORDS, COVER_STEP};

/// Progress of covering an idle log.
struct IdleState {
    /// Number of commits at the last step.
    commits: u64,
    /// Superblocks logged since the last other commit.
    covers: u32,
}

impl LogShared {
    /// The thread's main loop; returns when it is stopped.
    pub fn background_loop(self: &Arc<Self>, interval: Duration, commit_interval: Option<Duration>) {
        let mut idle = IdleState { commits: 0, covers: COVER_RECORDS };
        let mut pause = interval;
        // The commit interval, while the log is in use.
        let mut commit_pause = None;
        // When metadata writeback was last requested.
        let mut written_back = elapsed();
        while let Some(notified) = self.cil_notify.wait(commit_pause.unwrap_or(pause)) {
            if self.is_shut_down() {
                (pause, commit_pause) = (interval, None);
            } else if notified || commit_pause.is_some() {
                let has_pushed = self.commit_step();
                commit_pause = commit_interval.filter(|_| has_pushed);
                // A log that is always in use does not become idle.
                if elapsed().saturating_sub(written_back) >= interval {
                    written_back = elapsed();
                    self.request_ail_push(self.ail.newest());
                }
            } else {
                pause = if self.idle_step(&mut idle) { COVER_STEP.min(interval) } else { interval };
            }
        }
    }

    /// Pushes what was committed, and returns whether there was anything. Data that was written after the last
    /// transaction is flushed.
    fn commit_step(&self) -> bool {
        let current = self.cil.progress.current();
        // A push or a flush that fails has shut the volume down.
        let _ = self.push(current);
        let has_pushed = self.cil.progress.current() > current;
        if !has_pushed {
            let _ = self.flush_unlogged_writes(CommitTarget::unlogged_writes(self));
        }
        has_pushed
    }

    /// Takes one step towards a covered log; returns whether another one should follow soon.
    fn idle_step(self: &Arc<Self>, idle: &mut IdleState) -> bool {
        let covering = self.covering.lock();
        if !*covering {
            return false;
        }
        let commits = self.cil.commits();
        if commits != idle.commits {
            *idle = IdleState { commits, covers: 0 };
            let _ = self.push(self.cil.progress.current());
            return true;
        }
        if self.cil.progress.current() - 1 > self.cil.progress.stable() {
            return true;
        }
        if !self.ail.is_empty() {
            self.request_ail_push(self.ail.newest());
            return idle.covers < COVER_RECORDS;
        }
        if idle.covers >= COVER_RECORDS || !self.log_superblock() {
            return false;
        }
        idle.covers += 1;
        idle.commits = self.cil.commits();
        let _ = self.push(self.cil.progress.current());
        true
    }

    /// Commits the beginning of the superblock unchanged; returns `false` if that is not possible now.
    fn log_superblock(self: &Arc<Self>) -> bool {
        let reservation = LogReservation { bytes: 1024, transactions: 1 };
        let Some(ticket) = self.try_ticket(reservation) else { return false };
        let target: Arc<dyn CommitTarget> = self.clone();
        let mut tx = Transaction::with(TransactionContext::new(&target, &self.cache), Some(ticket));
        let at = DiskExtent { daddr: Daddr(0), bytes: self.geometry.sector_size };
        let is_superblock = |bytes: &[u8]| match bytes.get(..4) {
            Some(b"XFSB") => Ok(()),
            found => Err(Damage::new("superblock", "magicnum", "XFSB", format_args!("{found:?}"))),
        };
        let Ok(Some(id)) = tx.try_read(at, Rank::Buffer, is_superblock) else { return false };
        tx.bytes_mut(id, 0..CHUNK_BYTES);
        tx.commit(&mut []).is_ok()
    }
}
