//! Stretches: the AGs of a volume in as many parts as it has flushers.
//!
//! A file belongs to the stretch of its inode's AG, where its blocks are claimed, too. So flushers usually want
//! different AGs. Nothing depends on that: the last stretch includes the AGs of a volume that has grown.
//!
//! # Invariants
//! - Dirty files of a stretch that no pass has taken are only there while [`Stretch::has_dirty`].
//! - A sync that requests a pass of the stretch's flusher gets an answer, or runs the pass itself.
//!
//! # Locking
//! `pass` (rank `Pass`) is held for a whole pass. A thread that holds it takes no other stretch's.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use base::lock::{Condvar, Mutex, Rank};

use crate::sync::{PANICKED, PassResult};
use crate::tuning::FLUSHERS_MAX;
use crate::wakeup::Wakeup;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// Held by the pass that runs.
    pub pass: Mutex<()>,
    pub wakeup: Wakeup,
    dirty: DirtyFlag,
    request: Mutex<Request>,
    answered: Condvar,
}

/// On a cache line of its own, as every thread that makes a clean file dirty reads it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct DirtyFlag(AtomicBool);

/// A request for a pass. There is at most one: only one sync runs at a time.
#[derive(Debug, Default)]
enum Request {
    #[default]
    None,
    Posted,
    /// The flusher runs the pass.
    Taken,
    Answered(PassResult),
}

impl Default for Stretch {
    fn default() -> Self {
        Self {
            pass: Mutex::new(Rank::Pass, ()),
            wakeup: Wakeup::default(),
            dirty: DirtyFlag::default(),
            request: Mutex::new(Rank::Leaf, Request::default()),
            answered: Condvar::new(),
        }
    }
}

impl Stretch {
    /// Returns the stretches of a volume, for this number of flushers.
    pub fn all(flushers: Option<usize>, groups: u64) -> Box<[Self]> {
        let default = || base::percpu::available().min(FLUSHERS_MAX);
        let most = usize::try_from(groups).unwrap_or(usize::MAX).max(1);
        (0..flushers.unwrap_or_else(default).clamp(1, most)).map(|_| Self::default()).collect()
    }

    /// Returns whether a dirty file may be tracked.
    pub fn has_dirty(&self) -> bool {
        self.dirty.0.load(SeqCst)
    }

    /// Called after a dirty file was added.
    pub fn added(&self) {
        if !self.has_dirty() {
            self.dirty.0.store(true, SeqCst);
        }
    }

    /// Called before all dirty files are taken.
    pub fn taken(&self) {
        self.dirty.0.store(false, SeqCst);
    }

    /// Requests a pass over everything that is dirty now. It is withdrawn when the result is dropped.
    pub fn request(&self) -> RequestedPass<'_> {
        *self.request.lock() = Request::Posted;
        self.wakeup.notify();
        RequestedPass(self)
    }

    /// Takes the request, to answer it.
    pub fn take_request(&self) -> Option<TakenRequest<'_>> {
        let mut request = self.request.lock();
        matches!(*request, Request::Posted).then(|| {
            *request = Request::Taken;
            TakenRequest { stretch: self, result: PassResult { written: 0, failed: Some(PANICKED) } }
        })
    }
}

/// A pass that was requested of a flusher.
#[derive(Debug)]
pub(crate) struct RequestedPass<'s>(&'s Stretch);

impl RequestedPass<'_> {
    /// Returns the result; `None` if the flusher has not begun the pass. Then it will not.
    pub fn result(&self) -> Option<PassResult> {
        let mut request = self.0.request.lock();
        while matches!(*request, Request::Taken) {
            self.0.answered.wait(&mut request);
        }
        match std::mem::take(&mut *request) {
            Request::Answered(result) => Some(result),
            _ => None,
        }
    }
}

impl Drop for RequestedPass<'_> {
    fn drop(&mut self) {
        let _ = self.result();
    }
}

/// A request that a flusher answers when this is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct TakenRequest<'s> {
    stretch: &'s Stretch,
    pub result: PassResult,
}

impl Drop for TakenRequest<'_> {
    fn drop(&mut self) {
        *self.stretch.request.lock() = Request::Answered(std::mem::take(&mut self.result));
        self.stretch.answered.notify_all();
    }
}

/// Returns the stretch of a group.
pub(crate) fn stretch_of(group: u64, groups: u64, stretches: usize) -> usize {
    let each = groups.div_ceil(stretches as u64).max(1);
    usize::try_from(group / each).unwrap_or(usize::MAX).min(stretches.saturating_sub(1))
}
