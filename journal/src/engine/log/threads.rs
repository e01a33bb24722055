//! The journal's threads, and who does their work while there are none.
//!
//! | thread | until it runs, its work is done by |
//! |---|---|
//! | writes records | whoever forces the log or unmounts |
//! | writes home | whoever unmounts |
//! | pushes checkpoints | whoever forces the log |
//!
//! Whoever needs something else of them, and may hold locks, starts them all: a checkpoint that became large, a log
//! that is full, a push that has no buffer left.
//!
//! # Invariants
//! Who helps goes on until there is nothing to write. So what another thread left to it is never forgotten: that one
//! saw a record being written in front of its own. A panic of whoever does this work shuts the volume down, which wakes
//! all that wait for it.
//!
//! # Locking
//! One mutex of rank `Leaf` around the handles; threads begin under it, and nobody waits for them under it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::lock::{Mutex, Rank};
use base::thread::JoinHandle;

use super::Options;
use super::shared::LogShared;
use crate::engine::error::Error;

/// The threads.
pub struct LogThreads {
    /// All of them run, or have run.
    started: AtomicBool,
    context: OnceLock<ThreadContext>,
    threads: Mutex<ThreadHandles>,
}

/// What threads are started with.
struct ThreadContext {
    shared: Weak<LogShared>,
    writers: usize,
    interval: Duration,
}

#[derive(Default)]
struct ThreadHandles {
    handles: Vec<JoinHandle<()>>,
    /// None begins any more.
    over: bool,
}

impl LogThreads {
    pub fn new() -> Self {
        let threads = Mutex::new(Rank::Leaf, ThreadHandles::default());
        Self { started: AtomicBool::new(false), context: OnceLock::new(), threads }
    }

    /// Tells what the threads belong to. Before anything else.
    pub fn attach(&self, shared: &Arc<LogShared>, options: &Options) {
        let context = ThreadContext {
            shared: Arc::downgrade(shared),
            writers: options.writers.max(1),
            interval: options.interval,
        };
        let weak = context.shared.clone();
        // Nobody else sets it.
        let _ = self.context.set(context);
        if !options.background {
            shared.iclogs.set_exhausted_callback(Box::new(move || {
                if let Some(shared) = weak.upgrade() {
                    shared.ensure_threads();
                }
            }));
        }
    }

    /// Waits until all have ended. None begins any more.
    pub fn join(&self) {
        let mut threads = self.threads.lock();
        threads.over = true;
        let handles = std::mem::take(&mut threads.handles);
        drop(threads);
        for thread in handles {
            if !thread.is_current() {
                // A thread that panicked has said so itself.
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
            thread.map_err(|error| Error::log(format!("no thread for the log can be started: {error}")))?;
        self.handles.push(thread);
        Ok(())
    }
}

/// Shuts the volume down when a thread panics that does the journal's work. Others would wait for that work for ever.
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
    /// Starts the threads, unless they run.
    pub fn start_threads(&self) -> Result<(), Error> {
        let Some(context) = self.threads.context.get() else { return Ok(()) };
        let Some(shared) = context.shared.upgrade() else { return Ok(()) };
        let mut threads = self.threads.threads.lock();
        if threads.over || self.threads.started.swap(true, SeqCst) {
            return Ok(());
        }
        let interval = context.interval;
        threads.spawn("xfs-log-push", &shared, |shared| shared.ail_push_loop())?;
        threads.spawn("xfs-cil-push", &shared, move |shared| shared.background_loop(interval))?;
        for _ in 0..context.writers {
            threads.spawn("xfs-log-write", &shared, |shared| shared.iclogs.write_loop(&**shared))?;
        }
        Ok(())
    }

    /// Starts the threads where something is left to them. Without any the volume is shut down: it would wait for ever.
    pub fn ensure_threads(&self) {
        if !self.threads.started.load(SeqCst)
            && let Err(error) = self.start_threads()
        {
            self.shut_down(&error.to_string());
        }
    }

    /// Whether who waits must do the work.
    pub fn runs_inline(&self) -> bool {
        !self.threads.started.load(SeqCst)
    }

    /// Writes the records that wait to be written, where no thread does.
    pub fn write_iclogs_inline(&self) {
        if self.runs_inline() {
            let _guard = ShutDownOnPanic(self);
            self.iclogs.write_waiting(self);
        }
    }
}
