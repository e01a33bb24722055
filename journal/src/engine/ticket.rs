//! What a transaction has reserved of the log, as the journal accounts for it.
//!
//! # Invariants
//! A ticket never goes below zero: `Ticket::charge` refuses, and the volume is shut down, because what a transaction
//! logs beyond its reservation might not fit into the log.

use super::commit_target::{LogReservation, Ticket};
use super::shutdown::Shutdown;
use super::sizes::LogSizes;

/// What the journal keeps of a ticket beside what is left of it.
#[derive(Debug, Default)]
pub(super) struct TicketAccount {
    /// All that one transaction of the chain reserves.
    pub unit: u64,
    /// The records that one transaction's bytes may need, of which it pays the headers.
    pub records: u64,
}

/// Bytes that a transaction logs at most, with the headers of its operations: twelve for each region. A buffer has one
/// region for each two chunks of 128 bytes at most; an inode four in some hundred bytes; small items of one region are
/// few.
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

    /// All that the ticket holds.
    pub(super) fn held(&self) -> u64 {
        self.left + u64::from(self.rolls_left) * self.account.unit
    }

    /// Takes `bytes` for the log.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), Shutdown> {
        let Some(left) = self.left.checked_sub(bytes) else {
            return Err(Shutdown::Because(format!(
                "a transaction takes {bytes} bytes of the log and has {} left of the {} that it reserved for {} bytes \
                 of items",
                self.left, self.account.unit, self.reservation.bytes
            )));
        };
        self.left = left;
        Ok(())
    }

    /// Begins the next transaction of the chain. Gives what the last one left over, and whether a new unit has to be
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
