//! Which checkpoint is being built, which were pushed, which are stable.
//!
//! # Locking
//! One mutex of rank `Checkpoint`, with one condition for all that wait. The numbers are also kept as atomics, so that
//! whoever need not wait takes no lock.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::lock::{Condvar, Mutex, Rank};

use crate::engine::shutdown::Shutdown;
use crate::engine::tuning::MAX_CHECKPOINTS_IN_FLIGHT;

/// The numbers of checkpoints.
#[derive(Debug)]
pub struct CheckpointProgress {
    /// The one being built: all before it were pushed.
    current: AtomicU64,
    /// All up to this one are stable.
    stable: AtomicU64,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl CheckpointProgress {
    /// Nothing was pushed, and `first` is being built.
    pub fn new(first: u64) -> Self {
        Self {
            current: AtomicU64::new(first),
            stable: AtomicU64::new(first - 1),
            closed: Mutex::new(Rank::Checkpoint, false),
            changed: Condvar::new(),
        }
    }

    /// The checkpoint that is being built.
    pub fn current(&self) -> u64 {
        self.current.load(SeqCst)
    }

    /// The last checkpoint that is stable, as are all before it.
    pub fn stable(&self) -> u64 {
        self.stable.load(SeqCst)
    }

    /// The next checkpoint is being built from now on.
    pub fn pushed(&self, sequence: u64) {
        self.current.store(sequence + 1, SeqCst);
        self.wake();
    }

    /// A checkpoint is stable.
    pub fn became_stable(&self, sequence: u64) {
        self.stable.fetch_max(sequence, SeqCst);
        self.wake();
    }

    /// Nothing becomes stable any more.
    pub fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until a checkpoint is stable.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn wait_stable(&self, sequence: u64) -> Result<(), Shutdown> {
        self.wait(|| self.stable() >= sequence)
    }

    /// Waits until a checkpoint is no longer being built.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn wait_pushed(&self, sequence: u64) -> Result<(), Shutdown> {
        self.wait(|| self.current() > sequence)
    }

    /// Waits while so many checkpoints are in flight that another would come no sooner; those that want one
    /// wait_for_batch.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn wait_for_batch(&self, sequence: u64) -> Result<(), Shutdown> {
        self.wait(|| self.current() > sequence || self.current() - self.stable() <= MAX_CHECKPOINTS_IN_FLIGHT)
    }

    fn wait(&self, is_so: impl Fn() -> bool) -> Result<(), Shutdown> {
        if is_so() {
            return Ok(());
        }
        let mut closed = self.closed.lock();
        loop {
            if is_so() {
                return Ok(());
            }
            if *closed {
                return Err(Shutdown::Already);
            }
            self.changed.wait(&mut closed);
        }
    }

    /// The lock is taken between the change and the wake-up, so that nobody can miss both.
    fn wake(&self) {
        drop(self.closed.lock());
        self.changed.notify_all();
    }
}
