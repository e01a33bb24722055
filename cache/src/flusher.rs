//! The flusher threads, one for each stretch of AGs, and the passes of writeback.
//!
//! # Invariants
//! - A pass writes the files that are dirty when it begins. So it ends although writers continue.
//! - One pass of a stretch runs at a time. Passes of several stretches run at once.
//!
//! # Locking
//! A pass holds `pass` of its stretch.

use std::sync::Arc;

use base::thread::JoinHandle;
use error::Error;

use crate::cache::Cache;
use crate::contents::Contents;
use crate::dirty_files::{DirtyFile, Due};
use crate::stretch::{Stretch, stretch_of};
use crate::sync::PassResult;
use backing::Backing;

/// The threads that write back. Dropping it ends them; dirty data stays.
#[derive(Debug)]
pub struct Flusher<B: Backing> {
    cache: Arc<Cache<B>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Backing> Flusher<B> {
    /// Starts a thread for each stretch.
    ///
    /// # Errors
    /// `ENOMEM` if a thread cannot be started.
    pub fn start(cache: &Arc<Cache<B>>) -> Result<Self, Error> {
        cache.pace.set_flushers(true);
        let mut flusher = Self { cache: Arc::clone(cache), threads: Vec::new() };
        for at in 0..cache.stretches.len() {
            let running = Running(Arc::clone(cache));
            let thread = base::thread::spawn("xebec-flusher", move || running.0.run_flusher(at));
            flusher.threads.push(thread.map_err(|_| Error::Refused {
                errno: base::errno::ENOMEM,
                why: "the system gives no thread for writing back (raise its limit of threads)",
            })?);
        }
        Ok(flusher)
    }
}

/// A flusher that runs. When one ends, even by a panic, writers write back themselves.
struct Running<B: Backing>(Arc<Cache<B>>);

impl<B: Backing> Drop for Running<B> {
    fn drop(&mut self) {
        self.0.pace.set_flushers(false);
        self.0.pace.notify();
    }
}

impl<B: Backing> Drop for Flusher<B> {
    fn drop(&mut self) {
        self.cache.stretches.iter().for_each(|stretch| stretch.wakeup.end());
        for thread in std::mem::take(&mut self.threads) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl<B: Backing> Cache<B> {
    /// A flusher thread.
    fn run_flusher(&self, at: usize) {
        let Some(stretch) = self.stretches.get(at) else { return };
        let mut committed = 0;
        while stretch.wakeup.wait(self.options.pause(self.dirty.exact() > 0)) {
            let is_commit_due = self.is_commit_due(committed);
            // Changes of metadata do not wait for data that takes long.
            if is_commit_due && self.dirty.exact() > 0 {
                self.backing.request_commit();
            }
            loop {
                if let Some(mut request) = stretch.take_request() {
                    request.result = self.pass_all(at);
                }
                if !self.work_on(at) {
                    break;
                }
            }
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

    /// Does what all flushers do when they wake up, for tests with their own clock. Returns whether one would continue
    /// at once.
    pub fn work(&self) -> bool {
        let again = (0..self.stretches.len()).filter(|at| self.work_on(*at));
        again.count() > 0
    }

    /// Writes back old dirty files of a stretch, or all of them above a limit. Returns whether to continue at once.
    fn work_on(&self, at: usize) -> bool {
        let Some(stretch) = self.stretches.get(at) else { return false };
        let result = self.in_pass(stretch, at, || {
            let all = self.dirty.exact() > self.limits.background || self.memory.is_exceeded();
            if all {
                return self.take_dirty(stretch, at);
            }
            self.dirty_files.take(at, Some(Due::at(self.now(), self.options.expire_nanos())))
        });
        if at == 0 {
            self.trim_preallocations();
        }
        result.written > 0 && result.failed.is_none() && self.dirty.exact() > self.limits.background
    }

    /// Writes back everything that is dirty in a stretch.
    pub(crate) fn pass_all(&self, at: usize) -> PassResult {
        match self.stretches.get(at) {
            Some(stretch) => self.in_pass(stretch, at, || self.take_dirty(stretch, at)),
            None => PassResult::default(),
        }
    }

    /// Tracks a file that became dirty.
    pub(crate) fn add_dirty(&self, contents: Arc<Contents<B>>, since: u64) {
        let at = self.stretch_of(&contents);
        self.dirty_files.add(at, DirtyFile { contents, since });
        self.note_dirty(at);
    }

    /// Tracks a file that is still dirty after a pass.
    pub(crate) fn put_back_dirty(&self, file: DirtyFile<B>) {
        let at = self.stretch_of(&file.contents);
        self.dirty_files.put_back(at, file);
        self.note_dirty(at);
    }

    fn note_dirty(&self, at: usize) {
        if let Some(stretch) = self.stretches.get(at) {
            stretch.added();
        }
    }

    fn stretch_of(&self, contents: &Contents<B>) -> usize {
        match self.stretches.len() {
            1 => 0,
            stretches => stretch_of(self.backing.group(&contents.file), self.groups, stretches),
        }
    }

    fn take_dirty(&self, stretch: &Stretch, at: usize) -> Vec<DirtyFile<B>> {
        stretch.taken();
        self.dirty_files.take(at, None)
    }

    /// Wakes the flushers that have something to write.
    pub(crate) fn wake_flushers(&self) {
        let dirty = self.stretches.iter().filter(|stretch| stretch.has_dirty());
        dirty.for_each(|stretch| stretch.wakeup.notify());
    }

    /// Drops dirty data: the volume ends as by a power cut. Otherwise dirty files and the cache would keep each other
    /// in memory.
    pub fn abandon(&self) {
        (0..self.stretches.len()).for_each(|at| drop(self.dirty_files.take(at, None)));
        self.release_preallocations();
    }

    /// Runs one pass over the files that `which` takes, and measures it.
    fn in_pass(&self, stretch: &Stretch, at: usize, which: impl FnOnce() -> Vec<DirtyFile<B>>) -> PassResult {
        let _pass = stretch.pass.lock();
        let pass = self.pace.begin_pass();
        let files = which();
        let begin = self.now();
        if !files.is_empty() {
            self.counters.passes.add();
        }
        let (written, failed) = self.write_files(files);
        self.memory.budget().became_clean();
        let nanos = self.now().saturating_sub(begin);
        self.pace.end_pass(at, &pass, (written, nanos), failed.is_some());
        PassResult { written, failed }
    }
}
