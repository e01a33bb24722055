//! Reserving and committing: what transactions call.

use std::sync::atomic::Ordering;

use base::Lsn;

use super::shared::LogShared;
use crate::engine::commit_target::{CommitTarget, LogReservation, Ticket};
use crate::engine::stats::LogCounters;
use crate::engine::transaction_items::TransactionItems;
use crate::engine::tuning::{ITEM_BYTES, PUSH_ITEMS_LEAST};
use error::Error;

impl LogShared {
    /// A ticket whose space is not reserved yet.
    fn ticket(&self, reservation: LogReservation) -> Result<Ticket, Error> {
        let (sizes, largest) = (self.iclogs.sizes(), self.grant.largest());
        let mut ticket = Ticket::of_log(sizes, reservation, reservation.transactions);
        if ticket.held() > largest {
            // A small log: the chain reserves one transaction at a time.
            ticket = Ticket::of_log(sizes, reservation, 1);
        }
        if ticket.held() > largest {
            return Err(Error::NoSpace { what: "a transaction in a log that is too small for it" });
        }
        Ok(ticket)
    }

    /// A ticket, if the log has space for it now.
    pub fn try_ticket(&self, reservation: LogReservation) -> Option<Ticket> {
        self.ticket(reservation).ok().filter(|ticket| self.grant.try_reserve(ticket.held()))
    }

    /// Waits until a checkpoint that is too large has been pushed. The caller holds no lock that other threads want.
    #[cold]
    fn hold_back(&self, checkpoint: u64) -> Result<(), Error> {
        LogCounters::add(&self.counters.throttled, 1);
        self.request_cil_push(checkpoint);
        self.cil.progress.wait_pushed(checkpoint).map_err(|shutdown| self.fail(shutdown))
    }

    /// Waits until a pushed checkpoint is stable, because those in flight take too much memory. The caller holds no
    /// lock that other threads want.
    #[cold]
    fn wait_stable(&self, checkpoint: u64) -> Result<(), Error> {
        LogCounters::add(&self.counters.throttled, 1);
        self.cil.progress.wait_stable(checkpoint).map_err(|shutdown| self.fail(shutdown))
    }

    /// Waits until less metadata is dirty, if it takes more than half of the memory of metadata buffers. Those exceed
    /// their memory. The caller holds no lock that writeback may need, as one that waits for log space.
    #[cold]
    fn wait_for_writeback(&self) -> Result<(), Error> {
        let part = self.cache.memory().part();
        let most = usize::try_from(part / 2 / ITEM_BYTES).unwrap_or(usize::MAX).max(2 * PUSH_ITEMS_LEAST);
        if self.ail.len() > most {
            LogCounters::add(&self.counters.throttled, 1);
            self.memory_waiters.fetch_add(1, Ordering::SeqCst);
            self.ensure_threads();
            self.ail_notify.notify();
            self.ail.wait_below(most);
            self.memory_waiters.fetch_sub(1, Ordering::SeqCst);
        }
        self.check()
    }
}

impl LogShared {
    /// Reserves space while recovered intents are finished. Only the caller can move the tail, so it must not wait. It
    /// may use the whole log except for the space that its chain needs to roll.
    #[cold]
    fn begin_recovering(&self, ticket: Ticket) -> Result<Ticket, Error> {
        let held = ticket.held();
        if self.grant.try_reserve_whole_log(held, ticket.account.unit) {
            return Ok(ticket);
        }
        // Records of intents that are finished are no longer needed once that is stable.
        self.force_to(self.cil.progress.current())?;
        if self.grant.try_reserve_whole_log(held, ticket.account.unit) {
            return Ok(ticket);
        }
        Err(Error::log(format!(
            "the log of {} bytes is full of operations that a crash interrupted, and has no space to finish the \
            first one (mount the volume with Linux once, or repair it)",
            self.iclogs.log_device().bytes()
        )))
    }
}

impl CommitTarget for LogShared {
    fn begin(&self, reservation: LogReservation) -> Result<Ticket, Error> {
        let ticket = self.ticket(reservation)?;
        if self.recovering_intents.load(Ordering::Relaxed) {
            return self.begin_recovering(ticket);
        }
        if let Some(checkpoint) = self.cil.too_large() {
            self.hold_back(checkpoint)?;
        }
        while let Some(checkpoint) = self.cil.too_large_in_flight() {
            self.wait_stable(checkpoint)?;
        }
        if self.cache.memory().is_exceeded() {
            self.wait_for_writeback()?;
        }
        self.grant.reserve(ticket.held(), self).map_err(|shutdown| self.fail(shutdown))?;
        Ok(ticket)
    }

    /// The caller has logged every item whose lock it keeps, so none of them holds the tail back.
    fn roll(&self, ticket: &mut Ticket) -> Result<(), Error> {
        match ticket.next() {
            (over, false) => {
                self.grant.give_back(over);
                self.check()
            }
            // The unused rest counts towards the new unit: the chain releases no space that it needs.
            (over, true) => {
                let need = ticket.account.unit.saturating_sub(over);
                self.grant.regrant(need, self).map_err(|shutdown| self.fail(shutdown))
            }
        }
    }

    fn commit(&self, ticket: &mut Ticket, commits: TransactionItems<'_, '_>) -> Result<(), Error> {
        self.check()?;
        let committed = self.cil.insert(ticket, commits).map_err(|shutdown| self.fail(shutdown))?;
        if committed.push {
            self.request_cil_push(committed.sequence);
        }
        Ok(())
    }

    fn end(&self, ticket: Ticket) {
        self.grant.give_back(ticket.held());
    }

    fn note_unlogged_write(&self) -> u64 {
        self.unlogged_writes.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn unlogged_writes(&self) -> u64 {
        self.unlogged_writes.load(Ordering::SeqCst)
    }

    fn force(&self) -> Result<(), Error> {
        self.force_to(self.cil.progress.current())
    }

    fn flush_busy(&self) -> Result<(), Error> {
        CommitTarget::force(self)?;
        self.in_flight.wait_released();
        CommitTarget::check(self)
    }

    fn is_near_tail(&self, lsn: Lsn) -> bool {
        let (head, half) = (self.grant.head(), self.grant.largest() / 2);
        head > self.grant.tail() + half && self.iclogs.log_device().position(lsn) + half < head
    }

    fn intent_id(&self) -> u64 {
        self.intent_ids.next()
    }

    fn shut_down(&self, cause: &str) {
        LogShared::shut_down(self, cause);
    }

    fn request_writeback(&self) {
        Self::request_writeback(self);
    }

    fn check(&self) -> Result<(), Error> {
        LogShared::check(self)
    }
}
