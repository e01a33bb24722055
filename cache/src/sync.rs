//! Syncs: writing back everything that is dirty.
//!
//! A sync is one pass of each stretch with dirty files. The thread that syncs runs one of them, and requests the others
//! of the flushers, if there are any. A flusher that is busy with another pass does not hold the sync up longer than
//! that: the thread runs the pass itself.
//!
//! # Invariants
//! - A sync writes what was dirty when it was called. Files that become dirty meanwhile are tracked anew and not waited
//!   for, so that a steady writer cannot delay it without end.
//! - A sync that is called during another one waits for the next one, which all such syncs share.
//! - A clean file is not tracked, and costs nothing.
//!
//! # Locking
//! A thread that waits for another one's sync, or for a flusher, holds no lock of rank `Pass` or later.

use backing::Backing;
use base::lock::{Condvar, Mutex, Rank};
use error::Error;

use crate::cache::Cache;

/// Result of a pass that panics.
pub(crate) const PANICKED: Error = Error::Refused {
    errno: base::errno::EIO,
    why: "writeback panicked (this is a bug; the panic's message says where)",
};

/// Result of one or several passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassResult {
    /// Bytes that were dirty and are clean.
    pub written: u64,
    /// The first error.
    pub failed: Option<Error>,
}

impl PassResult {
    fn join(&mut self, other: Self) {
        self.written += other.written;
        self.failed = self.failed.take().or(other.failed);
    }
}

/// Syncs, one after the other.
#[derive(Debug)]
pub(crate) struct Syncs {
    state: Mutex<SyncState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    running: bool,
    started: u64,
    finished: u64,
    /// Bytes that all syncs have written.
    written: u64,
    /// Error of the last one.
    failed: Option<Error>,
}

impl Default for Syncs {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Leaf, SyncState::default()), ended: Condvar::new() }
    }
}

/// The sync that runs. It ends when this is dropped, so that others do not wait forever after a panic.
struct Running<'s> {
    syncs: &'s Syncs,
    result: PassResult,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.syncs.state.lock();
        state.running = false;
        state.finished = state.started;
        state.written += self.result.written;
        state.failed = self.result.failed.take();
        self.syncs.ended.notify_all();
    }
}

impl Syncs {
    /// Calls `sync`, or waits for the call of another thread that began after this one.
    fn share(&self, sync: impl Fn() -> PassResult) -> PassResult {
        let mut state = self.state.lock();
        let (mine, before) = (state.started + 1, state.written);
        while state.finished < mine {
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.running = true;
            state.started += 1;
            drop(state);
            let result = PassResult { written: 0, failed: Some(PANICKED) };
            let mut running = Running { syncs: self, result };
            running.result = sync();
            drop(running);
            state = self.state.lock();
        }
        // All that was written since the call, if another one has ended meanwhile.
        PassResult { written: state.written - before, failed: state.failed.clone() }
    }
}

impl<B: Backing> Cache<B> {
    /// Writes back everything that was dirty when it was called, and waits. The caller forces the log afterwards.
    ///
    /// # Errors
    /// The first error. Data that failed stays dirty; `fsync` of its file reports the error, too.
    pub fn sync_all(&self) -> Result<(), Error> {
        self.write_back_all().failed.map_or(Ok(()), Err)
    }

    /// Writes back everything that is dirty now.
    pub(crate) fn write_back_all(&self) -> PassResult {
        self.syncs.share(|| self.pass_each())
    }

    /// Releases preallocations, and the reservations of dirty data by writing it back. Returns whether it wrote
    /// anything.
    pub(crate) fn release_space(&self) -> bool {
        self.release_preallocations();
        self.write_back_all().written > 0
    }

    /// Runs a pass over all dirty files of each stretch.
    fn pass_each(&self) -> PassResult {
        // Files that another pass has taken may be dirty, too; it puts them back.
        let is_busy = |at: &usize| {
            self.stretches.get(*at).is_some_and(|stretch| match stretch.pass.try_lock() {
                Some(_pass) => stretch.has_dirty(),
                None => true,
            })
        };
        let mut busy = (0..self.stretches.len()).filter(is_busy);
        let Some(first) = busy.next() else { return PassResult::default() };
        let request = |at: usize| {
            let stretch = self.stretches.get(at).filter(|_| self.pace.has_flushers());
            (at, stretch.map(|stretch| stretch.request()))
        };
        let requested: Vec<_> = busy.map(request).collect();
        let mut result = self.pass_all(first);
        for (at, request) in requested {
            let answer = request.and_then(|request| request.result());
            result.join(answer.unwrap_or_else(|| self.pass_all(at)));
        }
        result
    }
}
