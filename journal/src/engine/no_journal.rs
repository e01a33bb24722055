//! A commit target without a journal, for tests of upper layers.
//!
//! A commit is stable at once. Items are written back by [`NoJournal::write_back`], so that a checker can read the
//! device. Nevertheless what a transaction logs is compared with its reservation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Lsn;
use base::lock::{Mutex, Rank};
use block::{Device, DeviceError};

use super::commit_target::{BusyExtentHook, CommitTarget, LogReservation, Ticket};
use super::inflight_writes::InflightWrites;
use super::item::{CommitPosition, LogItem};
use super::ticket::TicketAccount;
use super::transaction_items::TransactionItems;
use super::writeback::{DelwriQueue, PushResult};
use error::Error;

/// See the module.
#[derive(Debug)]
pub struct NoJournal {
    state: Mutex<State>,
    hook: Option<Arc<dyn BusyExtentHook>>,
    next_id: AtomicU64,
    next_checkpoint: AtomicU64,
    /// Most bytes that one transaction logged.
    most_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Arc<dyn LogItem>>,
    shut_down: Option<Arc<str>>,
}

/// LSN of all commits.
const LSN: Lsn = Lsn::new(1, 1);

impl NoJournal {
    /// A target that reports freed blocks to `hook`.
    pub fn new(hook: Option<Arc<dyn BusyExtentHook>>) -> Self {
        Self {
            state: Mutex::new(Rank::Ail, State::default()),
            hook,
            next_id: AtomicU64::new(1),
            next_checkpoint: AtomicU64::new(1),
            most_bytes: AtomicU64::new(0),
        }
    }

    /// Most bytes that one transaction logged: what a reservation must cover.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// Writes back all committed changes; returns the number of items that could not be, because their locks are held.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn write_back(&self, device: &dyn Device) -> Result<usize, Error> {
        let items = std::mem::take(&mut self.state.lock().waiting);
        let mut batch = DelwriQueue::new(device);
        let mut left = Vec::new();
        for item in items {
            let mut flush = Arc::clone(&item).push(&mut batch);
            if flush == PushResult::NotRead && item.read_buffer()? {
                flush = Arc::clone(&item).push(&mut batch);
            }
            match flush {
                PushResult::Queued => {}
                // An intent waits for its done item in a log, and there is none.
                PushResult::Clean | PushResult::AwaitingDone => item.core().set_lsn(None),
                _ => left.push(item),
            }
        }
        // Freed blocks may be reused at once: nothing else is written meanwhile.
        let (carried, result) = batch.write(LSN, &InflightWrites::default());
        for carried in carried {
            carried.item.core().set_lsn(None);
            carried.item.write_done(result.is_ok());
        }
        let count = left.len();
        self.state.lock().waiting.append(&mut left);
        result?;
        Ok(count)
    }
}

impl CommitTarget for NoJournal {
    fn begin(&self, reservation: LogReservation) -> Result<Ticket, Error> {
        self.check()?;
        Ok(Ticket {
            reservation,
            left: reservation.bytes.into(),
            rolls_left: reservation.transactions.saturating_sub(1),
            account: TicketAccount::default(),
        })
    }

    fn roll(&self, ticket: &mut Ticket) -> Result<(), Error> {
        self.check()?;
        ticket.left = ticket.reservation.bytes.into();
        Ok(())
    }

    fn commit(&self, ticket: &mut Ticket, mut commits: TransactionItems<'_, '_>) -> Result<(), Error> {
        self.check()?;
        let mut bytes = 0;
        commits.for_each(|commit| {
            // Each commit is a checkpoint of its own.
            let checkpoint = self.next_checkpoint.fetch_add(1, Ordering::Relaxed);
            commit.log(CommitPosition { checkpoint, order: 0 });
            let vector = commit.item().core().fetch(checkpoint);
            bytes += vector.map_or(0, |(_, vector)| vector.bytes() as u64);
            let mut state = self.state.lock();
            let item = commit.item();
            if item.core().lsn().is_none() {
                item.core().set_lsn(Some(LSN));
                state.waiting.push(item);
            }
        });
        self.most_bytes.fetch_max(bytes, Ordering::Relaxed);
        if bytes > ticket.left {
            self.shut_down(&format!("a transaction logs {bytes} bytes and has reserved {}", ticket.left));
        }
        let busy = std::mem::take(commits.busy);
        if let (Some(hook), false) = (&self.hook, busy.is_empty()) {
            hook.clear_busy(&busy);
        }
        self.check()
    }

    fn end(&self, _: Ticket) {}

    fn note_unlogged_write(&self) -> u64 {
        0
    }

    fn unlogged_writes(&self) -> u64 {
        0
    }

    fn force(&self) -> Result<(), Error> {
        self.check()
    }

    fn flush_busy(&self) -> Result<(), Error> {
        self.check()
    }

    fn is_near_tail(&self, _: Lsn) -> bool {
        false
    }

    fn intent_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn shut_down(&self, cause: &str) {
        self.state.lock().shut_down.get_or_insert_with(|| cause.into());
    }

    fn check(&self) -> Result<(), Error> {
        match &self.state.lock().shut_down {
            Some(cause) => Err(Error::ShutDown { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }
}

impl DelwriQueue<'_> {
    /// Writes the queued buffers, without calling [`LogItem::write_done`].
    ///
    /// # Errors
    /// The device's.
    pub fn submit_untracked(self, lsn: Lsn) -> Result<(), DeviceError> {
        self.write(lsn, &InflightWrites::default()).1
    }
}
