//! Which checkpoint is being built, which are pushed, which are stable.
//!
//! # Locking
//! One mutex of rank `Checkpoint`, with one condition for all waiting threads. The numbers are also atomics, so that a
//! thread that need not wait takes no lock.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::lock::{Condvar, Mutex, Rank};

use crate::engine::shutdown::Shutdown;
use crate::engine::tuning::MAX_CHECKPOINTS_IN_FLIGHT;

/// Sequence numbers of the checkpoints.
#[derive(Debug)]
pub struct CheckpointProgress {
    /// The one being built: all before it are pushed.
    current: AtomicU64,
    /// All up to this one are stable.
    stable: AtomicU64,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl CheckpointProgress {
    /// Nothing is pushed, and `first` is being built.
    pub fn new(first: u64) -> Self {
        Self {
            current: AtomicU64::new(first),
            stable: AtomicU64::new(first - 1),
            closed: Mutex::new(Rank::Checkpoint, false),
            changed: Condvar::new(),
        }
    }

    /// The checkpoint being built.
    pub fn current(&self) -> u64 {
        self.current.load(SeqCst)
    }

    /// The last stable checkpoint; all before it are stable too.
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

    /// Waits while so many checkpoints are in flight that another one would not be stable any sooner.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn throttle(&self, sequence: u64) -> Result<(), Shutdown> {
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

    /// Takes the lock between the change and the notification, so that no waiting thread misses both.
    fn wake(&self) {
        drop(self.closed.lock());
        self.changed.notify_all();
    }
}
