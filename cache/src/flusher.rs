//! The flusher thread, and syncs.
//!
//! # Invariants
//! - A sync writes what was dirty when it was called: one pass over the dirty files. Files that become dirty meanwhile
//!   are tracked anew and not waited for, so that a steady writer cannot delay it without end.
//! - A sync that is called during a pass of syncs waits for the next one, which all such syncs share.
//! - A clean file is not tracked, and costs nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, SeqCst};
use std::time::Duration;

use base::lock::{Condvar, Mutex, Rank};
use base::thread::JoinHandle;
use error::Error;

use crate::cache::Cache;
use crate::dirty_files::{DirtyFile, Due};
use backing::Backing;

/// Wakes the flusher. A notification stays pending until the flusher has seen it.
#[derive(Debug)]
pub(crate) struct Wakeup {
    state: Mutex<WakeupState>,
    condvar: Condvar,
    /// Nothing is pending, so that [`notify`](Self::notify) is usually one atomic operation.
    is_idle: AtomicBool,
}

#[derive(Debug, Default)]
struct WakeupState {
    is_pending: bool,
    is_ended: bool,
}

impl Default for Wakeup {
    fn default() -> Self {
        let state = Mutex::new(Rank::Leaf, WakeupState::default());
        Self { state, condvar: Condvar::new(), is_idle: AtomicBool::new(true) }
    }
}

impl Wakeup {
    /// Notifies the flusher, unless a notification is pending.
    pub fn notify(&self) {
        // The flusher that sees the notification sees everything its callers did before.
        if self.is_idle.swap(false, AcqRel) {
            self.state.lock().is_pending = true;
            self.condvar.notify_one();
        }
    }

    fn end(&self) {
        self.state.lock().is_ended = true;
        self.condvar.notify_one();
    }

    /// Waits for a notification, at most `timeout` (zero: forever). Returns `false` at the end.
    fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_pending && !state.is_ended {
            match timeout.is_zero() {
                true => self.condvar.wait(&mut state),
                false => drop(self.condvar.wait_for(&mut state, timeout)),
            }
        }
        state.is_pending = false;
        self.is_idle.swap(true, AcqRel);
        !state.is_ended
    }
}

/// Passes of syncs, for syncs that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    running: bool,
    started: u64,
    finished: u64,
    failed: Option<Error>,
}

/// Result of a pass that panics.
const PANICKED: Error = Error::Refused {
    errno: base::errno::EIO,
    why: "writeback panicked (this is a bug; the panic's message says where)",
};

/// The pass of a sync. It ends when this is dropped, so that other syncs do not wait forever after a panic.
struct SyncPass<'c, B: Backing> {
    cache: &'c Cache<B>,
    failed: Option<Error>,
}

impl<B: Backing> Drop for SyncPass<'_, B> {
    fn drop(&mut self) {
        let mut syncs = self.cache.syncs.lock();
        syncs.running = false;
        syncs.finished = syncs.started;
        syncs.failed = self.failed.take();
        self.cache.synced.notify_all();
    }
}

/// The thread that writes back. Dropping it ends the thread; dirty data stays.
#[derive(Debug)]
pub struct Flusher<B: Backing> {
    cache: Arc<Cache<B>>,
    thread: Option<JoinHandle<()>>,
}

impl<B: Backing> Flusher<B> {
    /// Starts the thread.
    ///
    /// # Errors
    /// `ENOMEM` if no thread can be started.
    pub fn start(cache: &Arc<Cache<B>>) -> Result<Self, Error> {
        cache.pace.flusher.store(true, SeqCst);
        let running = Running(Arc::clone(cache));
        let thread = base::thread::spawn("xebec-flusher", move || running.0.run_flusher());
        let thread = thread.map_err(|_| Error::Refused {
            errno: base::errno::ENOMEM,
            why: "the system gives no thread for writing back (raise its limit of threads)",
        })?;
        Ok(Self { cache: Arc::clone(cache), thread: Some(thread) })
    }
}

/// Marks the flusher as running. When it ends, even by a panic, writers write back themselves.
struct Running<B: Backing>(Arc<Cache<B>>);

impl<B: Backing> Drop for Running<B> {
    fn drop(&mut self) {
        self.0.pace.flusher.store(false, SeqCst);
        self.0.pace.notify();
    }
}

impl<B: Backing> Drop for Flusher<B> {
    fn drop(&mut self) {
        self.cache.wakeup.end();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl<B: Backing> Cache<B> {
    /// The flusher thread.
    fn run_flusher(&self) {
        let mut committed = 0;
        while self.wakeup.wait(self.options.pause(self.dirty.exact() > 0)) {
            let is_commit_due = self.is_commit_due(committed);
            // Changes of metadata do not wait for data that takes long.
            if is_commit_due && self.dirty.exact() > 0 {
                self.backing.request_commit();
            }
            while self.work() {}
            if is_commit_due {
                self.backing.request_commit();
                committed = self.now();
            }
        }
    }

    /// Whether changes of metadata are to become stable, if the last ones were requested to at the time `committed`. A
    /// flusher that is notified often does not request it each time. The clock may be changed.
    fn is_commit_due(&self, committed: u64) -> bool {
        let often = self.options.pause(true) / 2;
        self.options.commit_s.is_some() && u128::from(self.now().abs_diff(committed)) >= often.as_nanos()
    }

    /// Writes back old dirty files, or all of them above a limit. Returns whether to continue at once. Called by the
    /// flusher, and by tests with their own clock.
    pub fn work(&self) -> bool {
        let (written, failed) = self.in_pass(|| {
            let all = self.dirty.exact() > self.limits.background || self.memory.is_exceeded();
            self.dirty_files.take((!all).then(|| Due::at(self.now(), self.options.expire_nanos())))
        });
        self.trim_preallocations();
        written > 0 && failed.is_none() && self.dirty.exact() > self.limits.background
    }

    /// Writes back everything that is dirty now. Returns the bytes written, and the first error.
    pub(crate) fn write_back_all(&self) -> (u64, Option<Error>) {
        self.in_pass(|| self.dirty_files.take(None))
    }

    /// Releases preallocations, and the reservations of dirty data by writing it back. Returns whether it wrote
    /// anything.
    pub(crate) fn release_space(&self) -> bool {
        self.release_preallocations();
        self.write_back_all().0 > 0
    }

    /// Writes back everything that was dirty when it was called, and waits. The caller forces the log afterwards.
    ///
    /// # Errors
    /// The first error of the pass. Data that failed stays dirty; `fsync` of its file reports the error, too.
    pub fn sync_all(&self) -> Result<(), Error> {
        let mut syncs = self.syncs.lock();
        let mine = syncs.started + 1;
        while syncs.finished < mine {
            if syncs.running {
                self.synced.wait(&mut syncs);
                continue;
            }
            syncs.running = true;
            syncs.started += 1;
            drop(syncs);
            let mut pass = SyncPass { cache: self, failed: Some(PANICKED) };
            pass.failed = self.write_back_all().1;
            drop(pass);
            syncs = self.syncs.lock();
        }
        syncs.failed.clone().map_or(Ok(()), Err)
    }

    /// Drops dirty data: the volume ends as by a power cut. Otherwise dirty files and the cache would keep each other
    /// in memory.
    pub fn abandon(&self) {
        drop(self.dirty_files.take(None));
        self.release_preallocations();
    }

    /// Runs one pass over the files that `which` takes, and measures it.
    fn in_pass(&self, which: impl FnOnce() -> Vec<DirtyFile<B>>) -> (u64, Option<Error>) {
        let _pass = self.pass.lock();
        self.pace.begin_pass();
        let files = which();
        let begin = self.now();
        if !files.is_empty() {
            self.counters.passes.add();
        }
        let (written, failed) = self.write_files(files);
        self.memory.budget().became_clean();
        self.pace.end_pass(written, self.now().saturating_sub(begin), failed.is_some());
        (written, failed)
    }
}
