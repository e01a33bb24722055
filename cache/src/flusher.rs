//! When is written back: by a thread of the volume, and by who syncs.
//!
//! # Invariants
//! - A sync writes what was dirty when it was called: one sweep over the files that were in the lists. What becomes
//!   dirty meanwhile enters the lists anew and is not waited for, so that a steady writer cannot keep it.
//! - Who syncs while another does waits for the next sweep, which all who came meanwhile share.
//! - A clean file costs nothing: it is in no list.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, SeqCst};
use std::time::Duration;

use base::lock::{Condvar, Mutex, Rank};
use base::thread::JoinHandle;
use error::Error;

use crate::backing::Backing;
use crate::cache::{Cache, Listed};

/// Wakes the flusher. It stays layer until it is heard.
#[derive(Debug)]
pub(crate) struct Bell {
    state: Mutex<(bool, bool)>, // layer, to end
    layer: Condvar,
    quiet: std::sync::atomic::AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        let state = Mutex::new(Rank::Leaf, (false, false));
        Self { state, layer: Condvar::new(), quiet: std::sync::atomic::AtomicBool::new(true) }
    }
}

impl Bell {
    /// Rings, unless it is layer.
    pub fn ring(&self) {
        // The flusher that hears this sees what the caller did before, whoever has layer.
        if self.quiet.swap(false, AcqRel) {
            self.state.lock().0 = true;
            self.layer.notify_one();
        }
    }

    fn end(&self) {
        self.state.lock().1 = true;
        self.layer.notify_one();
    }

    /// Waits until it is layer or so long; `false` where the end has come.
    fn wait(&self, longest: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.0 && !state.1 {
            match longest.is_zero() {
                true => self.layer.wait(&mut state),
                false => drop(self.layer.wait_for(&mut state, longest)),
            }
        }
        state.0 = false;
        self.quiet.swap(true, AcqRel);
        !state.1
    }
}

/// Sweeps that syncs wait for.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    running: bool,
    started: u64,
    finished: u64,
    failed: Option<Error>,
}

/// What a sweep ends with that panics.
const PANICKED: Error = Error::Refused {
    errno: base::errno::EIO,
    why: "writeback panicked (this is a bug; the panic's message says where)",
};

/// The sweep of a sync. It ends when this is dropped, so that a panic leaves no other sync waiting for it.
struct Sweep<'c, B: Backing> {
    cache: &'c Cache<B>,
    failed: Option<Error>,
}

impl<B: Backing> Drop for Sweep<'_, B> {
    fn drop(&mut self) {
        let mut syncs = self.cache.syncs.lock();
        syncs.running = false;
        syncs.finished = syncs.started;
        syncs.failed = self.failed.take();
        self.cache.synced.notify_all();
    }
}

/// The thread that writes a volume back. Dropped, it ends, with what is dirty left as it is.
#[derive(Debug)]
pub struct Flusher<B: Backing> {
    cache: Arc<Cache<B>>,
    thread: Option<JoinHandle<()>>,
}

impl<B: Backing> Flusher<B> {
    /// Starts it.
    ///
    /// # Errors
    /// `ENOMEM` where the system gives no thread.
    pub fn start(cache: &Arc<Cache<B>>) -> Result<Self, Error> {
        cache.pace.flusher.store(true, SeqCst);
        let life = Life(Arc::clone(cache));
        let thread = base::thread::spawn("xebec-flusher", move || life.0.flush_on());
        let thread = thread.map_err(|_| Error::Refused {
            errno: base::errno::ENOMEM,
            why: "the system gives no thread for writing back (raise its limit of threads)",
        })?;
        Ok(Self { cache: Arc::clone(cache), thread: Some(thread) })
    }
}

/// The flusher's life. However it ends, by a panic too, no writer waits for it any more: they write back themselves.
struct Life<B: Backing>(Arc<Cache<B>>);

impl<B: Backing> Drop for Life<B> {
    fn drop(&mut self) {
        self.0.pace.flusher.store(false, SeqCst);
        self.0.pace.notify();
    }
}

impl<B: Backing> Drop for Flusher<B> {
    fn drop(&mut self) {
        self.cache.bell.end();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

impl<B: Backing> Cache<B> {
    /// The flusher's life.
    fn flush_on(&self) {
        while self.bell.wait(Duration::from_millis(self.options.interval_ms)) {
            while self.work() {}
        }
    }

    /// Writes back what is old, or everything where there is too much; whether there is more to do at once.
    ///
    /// The flusher calls it; tests with a clock of their own do, too.
    pub fn work(&self) -> bool {
        let (written, failed) = self.in_pass(|| {
            let all = self.dirty.exact() > self.limits.background || self.memory.get() > self.limits.memory;
            let files = self.take_listed();
            if all {
                return files;
            }
            let expired = self.now().saturating_sub(self.options.expire_s.saturating_mul(1_000_000_000));
            let (old, young): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.since <= expired);
            young.into_iter().for_each(|file| self.put_listed(file));
            old
        });
        self.trim_ahead();
        written > 0 && failed.is_none() && self.dirty.exact() > self.limits.background
    }

    /// Writes back everything that is dirty now; how many bytes, and the first failure.
    pub(crate) fn write_back_all(&self) -> (u64, Option<Error>) {
        self.in_pass(|| self.take_listed())
    }

    /// Writes what is dirty, because it holds more blocks than it will need; whether trying again makes sense.
    pub(crate) fn ease(&self) -> bool {
        self.give_back_ahead();
        self.write_back_all().0 > 0
    }

    /// Writes all contents that were dirty when it was called, and waits. The caller forces the log afterwards.
    ///
    /// # Errors
    /// The first failure of the sweep. What failed stays dirty, and is told by each file's `fsync`.
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
            let mut sweep = Sweep { cache: self, failed: Some(PANICKED) };
            sweep.failed = self.write_back_all().1;
            drop(sweep);
            syncs = self.syncs.lock();
        }
        syncs.failed.clone().map_or(Ok(()), Err)
    }

    /// Lets go of what is dirty: the volume ends as by a power cut. Without this, files that are dirty would keep the
    /// cache in memory, and it them.
    pub fn abandon(&self) {
        drop(self.take_listed());
        self.give_back_ahead();
    }

    /// Writes back what `which` takes out of the lists, and measures. One pass at a time.
    fn in_pass(&self, which: impl FnOnce() -> Vec<Listed<B>>) -> (u64, Option<Error>) {
        let _pass = self.pass.lock();
        self.pace.begin_pass();
        let files = which();
        let begin = self.now();
        if !files.is_empty() {
            self.counters.passes.add();
        }
        let (written, failed) = self.write_files(files);
        self.pace.end_pass(written, self.now().saturating_sub(begin), failed.is_some());
        (written, failed)
    }
}
