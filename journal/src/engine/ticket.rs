//! Tickets: the log space that a transaction has reserved.
//!
//! # Invariants
//! A ticket never goes below zero: `Ticket::charge` fails, and the volume is shut down, because what a transaction logs
//! beyond its reservation might not fit into the log.

use super::commit_target::{LogReservation, Ticket};
use super::shutdown::Shutdown;
use super::sizes::LogSizes;

/// The journal's accounting of a ticket.
#[derive(Debug, Default)]
pub(super) struct TicketAccount {
    /// Reservation of one transaction of the chain.
    pub unit: u64,
    /// Records that one transaction's bytes may need, whose headers it pays.
    pub records: u64,
}

/// Adds the headers of operations, twelve bytes for each region. A buffer has at most one region for two chunks of 128
/// bytes, an inode four in some hundred bytes; small items with one region are few.
fn with_headers(bytes: u32) -> u64 {
    u64::from(bytes) + u64::from(bytes) / 8 + 1024
}

impl Ticket {
    /// The ticket of a chain of transactions of which `count`, at least one, are reserved at once.
    pub(super) fn of_log(sizes: &LogSizes, reservation: LogReservation, count: u32) -> Self {
        let bytes = with_headers(reservation.bytes);
        let records = sizes.records(bytes);
        let unit = sizes.with_records(bytes, records);
        let account = TicketAccount { unit, records };
        Self { reservation, left: unit, rolls_left: count.max(1) - 1, account }
    }

    /// Bytes that the ticket holds.
    pub(super) fn held(&self) -> u64 {
        self.left + u64::from(self.rolls_left) * self.account.unit
    }

    /// Takes `bytes` of the current transaction's reservation.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), Shutdown> {
        let Some(left) = self.left.checked_sub(bytes) else {
            return Err(Shutdown::Because(format!(
                "a transaction takes {bytes} bytes of the log, with {} left of the {} reserved for {} bytes of \
                items (this is a bug)",
                self.left, self.account.unit, self.reservation.bytes
            )));
        };
        self.left = left;
        Ok(())
    }

    /// Begins the next transaction of the chain. Returns what the last one left over, and whether a new unit must be
    /// reserved.
    pub(super) fn next(&mut self) -> (u64, bool) {
        let over = std::mem::replace(&mut self.left, self.account.unit);
        match self.rolls_left.checked_sub(1) {
            Some(left) => {
                self.rolls_left = left;
                (over, false)
            }
            None => (over, true),
        }
    }
}
