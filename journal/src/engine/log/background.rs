//! The thread that pushes checkpoints which became large, or old, and covers a log in which nothing happens.
//!
//! Everything can be at home and the log's last record still tell of an older tail: then a recovery would do again what
//! is done. So an idle log is *covered*: two checkpoints are written that log a part of the superblock as it is. The
//! first tells that everything before is at home, the second that the first is.
//!
//! | an idle log | then |
//! |---|---|
//! | something was committed and not pushed | it is pushed |
//! | something is not at home | it is written home |
//! | everything is at home, and it is not covered | a superblock is logged |
//!
//! # Invariants
//! The thread waits for no log space and for no lock that a transaction may hold: those wait for its pushes. Nothing is
//! logged once an unmount has begun, as its record must be the last: the lock `covering` is held over each step.

use std::sync::Arc;
use std::time::Duration;

use base::Daddr;
use base::lock::Rank;
use format::damage::Damage;
use format::log::buffer::CHUNK_BYTES;

use super::shared::LogShared;
use crate::engine::buffer::DiskExtent;
use crate::engine::commit_target::{CommitTarget, LogReservation, TransactionContext};
use crate::engine::transaction::Transaction;
use crate::engine::tuning::{COVER_RECORDS, COVER_STEP};

/// How long a log was idle, and what was done about it.
struct IdleState {
    /// Commits when this was looked at last.
    commits: u64,
    /// Superblocks logged since anything else was.
    covers: u32,
}

impl LogShared {
    /// What the thread does until it is stopped.
    pub fn background_loop(self: &Arc<Self>, interval: Duration) {
        let mut idle = IdleState { commits: 0, covers: COVER_RECORDS };
        let mut pause = interval;
        while let Some(notified) = self.cil_notify.wait(pause) {
            if self.is_shut_down() {
                pause = interval;
                continue;
            }
            if notified {
                // A push that fails has shut the volume down.
                let _ = self.push(self.cil.progress.current());
            } else {
                pause = if self.idle_step(&mut idle) { COVER_STEP.min(interval) } else { interval };
            }
        }
    }

    /// One step towards a log that is covered; whether another should follow soon.
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
            self.request_push_to(self.ail.newest());
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

    /// Commits the beginning of the superblock as it is; `false` where that is not possible now.
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
