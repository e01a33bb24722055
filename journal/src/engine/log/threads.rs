//! The journal's threads, and their work while they do not run.
//!
//! | thread | until it runs, its work is done by |
//! |---|---|
//! | writes iclogs | the thread that forces the log or unmounts |
//! | metadata writeback | the thread that unmounts |
//! | pushes checkpoints | the thread that forces the log |
//!
//! A thread that needs other work of them, and may hold locks, starts them all: when a checkpoint became large, the log
//! is full, or a push has no iclog left.
//!
//! # Invariants
//! A thread that writes iclogs inline continues until there is nothing to write. So a record is never left behind by a
//! thread that saw an earlier record being written. A panic during this work shuts the volume down, which wakes all
//! waiting threads.
//!
//! # Locking
//! One mutex of rank `Leaf` protects the handles. Threads are started under it; no thread waits for another under it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::lock::{Mutex, Rank};
use base::thread::JoinHandle;

use super::Options;
use super::shared::LogShared;
use error::Error;

/// The background threads of a journal.
pub struct LogThreads {
    /// All threads run, or have run.
    started: AtomicBool,
    context: OnceLock<ThreadContext>,
    threads: Mutex<ThreadHandles>,
}

/// Parameters of the threads.
struct ThreadContext {
    shared: Weak<LogShared>,
    writers: usize,
    interval: Duration,
    commit_interval: Option<Duration>,
}

#[derive(Default)]
struct ThreadHandles {
    handles: Vec<JoinHandle<()>>,
    /// No thread is started any more.
    over: bool,
}

impl LogThreads {
    pub fn new() -> Self {
        let threads = Mutex::new(Rank::Leaf, ThreadHandles::default());
        Self { started: AtomicBool::new(false), context: OnceLock::new(), threads }
    }

    /// Sets what the threads belong to. Called once, before anything else.
    pub fn attach(&self, shared: &Arc<LogShared>, options: &Options) {
        let context = ThreadContext {
            shared: Arc::downgrade(shared),
            writers: options.writers.max(1),
            interval: options.interval,
            commit_interval: options.commit_interval,
        };
        let weak = context.shared.clone();
        // It is set only here.
        let _ = self.context.set(context);
        if !options.background {
            shared.iclogs.set_exhausted_callback(Box::new(move || {
                if let Some(shared) = weak.upgrade() {
                    shared.ensure_threads();
                }
            }));
        }
    }

    /// Waits until all threads have ended. None is started any more.
    pub fn join(&self) {
        let mut threads = self.threads.lock();
        threads.over = true;
        let handles = std::mem::take(&mut threads.handles);
        drop(threads);
        for thread in handles {
            if !thread.is_current() {
                // A thread that panicked has printed its message.
                let _ = thread.join();
            }
        }
    }
}

impl ThreadHandles {
    fn spawn(
        &mut self,
        name: &str,
        shared: &Arc<LogShared>,
        run: impl FnOnce(&Arc<LogShared>) + Send + 'static,
    ) -> Result<(), Error> {
        let shared = Arc::clone(shared);
        let thread = base::thread::spawn(name, move || {
            let _guard = ShutDownOnPanic(&shared);
            run(&shared);
        });
        let thread =
            thread.map_err(|error| Error::log(format!("cannot start a thread of the log: {error}")))?;
        self.handles.push(thread);
        Ok(())
    }
}

/// Shuts the volume down when a thread panics during the journal's work: others would wait for that work for ever.
pub(super) struct ShutDownOnPanic<'s>(pub &'s LogShared);

impl Drop for ShutDownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shut_down(
                "a thread of the journal panicked (this is a bug; the panic's message says where)",
            );
        }
    }
}

impl LogShared {
    /// Starts the threads unless they run.
    pub fn start_threads(&self) -> Result<(), Error> {
        let Some(context) = self.threads.context.get() else { return Ok(()) };
        let Some(shared) = context.shared.upgrade() else { return Ok(()) };
        let mut threads = self.threads.threads.lock();
        if threads.over || self.threads.started.swap(true, SeqCst) {
            return Ok(());
        }
        let (interval, commit_interval) = (context.interval, context.commit_interval);
        threads.spawn("xfs-ail-push", &shared, |shared| shared.ail_push_loop())?;
        threads.spawn("xfs-cil-push", &shared, move |shared| {
            shared.background_loop(interval, commit_interval);
        })?;
        for _ in 0..context.writers {
            threads.spawn("xfs-log-write", &shared, |shared| shared.iclogs.write_loop(&**shared))?;
        }
        Ok(())
    }

    /// Starts the threads because work is left to them. If that fails, shuts the volume down: it would wait for ever.
    pub fn ensure_threads(&self) {
        if !self.threads.started.load(SeqCst)
            && let Err(error) = self.start_threads()
        {
            self.shut_down(&error.to_string());
        }
    }

    /// Whether the waiting thread must do the work of the background threads.
    pub fn runs_inline(&self) -> bool {
        !self.threads.started.load(SeqCst)
    }

    /// Writes the waiting iclogs if no background thread does.
    pub fn write_iclogs_inline(&self) {
        if self.runs_inline() {
            let _guard = ShutDownOnPanic(self);
            self.iclogs.write_waiting(self);
        }
    }
}
