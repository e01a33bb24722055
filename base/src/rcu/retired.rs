//! Removed objects, freed after a grace period.

use std::fmt;

use super::reader::GracePeriod;
use super::{grace_period, is_in_section};
use crate::lock::{Mutex, Rank};
use crate::percpu::{self, PerCpu};
use crate::sync::yield_to_readers;

/// Removed objects for which one grace period is begun: it costs some microseconds.
const BATCH: usize = 64;
/// Removed objects of one CPU at which a thread that removes another one waits for the grace period. Readers never wait
/// for that thread, so the wait ends.
const BACKLOG_MAX: usize = 4096;

/// An object that was removed from where readers find it, and must be given to [`Retired::push`]. Dropped otherwise, it
/// is leaked, as a reader may use it.
#[must_use = "otherwise it is leaked"]
pub struct Removed<T>(*mut T);

// SAFETY: it owns the object, as a box does; readers of other threads may still have a shared reference.
#[allow(unsafe_code, reason = "a pointer instead of a box, as others still read the object")]
unsafe impl<T: Send + Sync> Send for Removed<T> {}

impl<T> Removed<T> {
    /// Takes an object over that came from [`Box::into_raw`] and was removed from where readers find it.
    pub(super) fn new(object: *mut T) -> Self {
        Self(object)
    }

    /// The object, which may still be read.
    #[allow(unsafe_code, reason = "it owns the object")]
    pub(super) fn object(&self) -> &T {
        // SAFETY: the object is freed after this, which owns it.
        unsafe { &*self.0 }
    }

    /// Frees the object.
    ///
    /// # Safety
    /// No section can have found it: a grace period has ended since it was removed, or there are no readers.
    #[allow(unsafe_code, reason = "no reader is left")]
    pub(super) unsafe fn free(self) {
        // SAFETY: it came from `Box::into_raw`, and the caller says that nobody reads it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T> fmt::Debug for Removed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Removed")
    }
}

/// Removed objects, freed in batches after a grace period.
pub struct Retired<T> {
    parts: PerCpu<Mutex<Part<T>>>,
}

struct Part<T> {
    /// Objects without a grace period so far.
    fresh: Vec<Removed<T>>,
    /// Objects that are freed when the grace period is over.
    waiting: Vec<Removed<T>>,
    grace_period: GracePeriod,
}

/// Objects that no reader can have any more.
struct Unread<T>(Vec<Removed<T>>);

impl<T> Drop for Unread<T> {
    #[allow(unsafe_code, reason = "no reader is left")]
    fn drop(&mut self) {
        for object in self.0.drain(..) {
            // SAFETY: as the type says.
            unsafe { object.free() };
        }
    }
}

impl<T> Default for Retired<T> {
    fn default() -> Self {
        let part = |_| {
            let part = Part { fresh: Vec::new(), waiting: Vec::new(), grace_period: GracePeriod::default() };
            Mutex::new(Rank::Retired, part)
        };
        Self { parts: PerCpu::new(percpu::available(), part) }
    }
}

impl<T> Part<T> {
    /// Begins the next grace period if the last one is over, and returns the objects that waited for it.
    fn advance(&mut self) -> Option<Unread<T>> {
        if !self.grace_period.is_over() {
            return None;
        }
        let unread = std::mem::take(&mut self.waiting);
        if !self.fresh.is_empty() {
            self.waiting = std::mem::take(&mut self.fresh);
            self.grace_period = grace_period();
        }
        Some(Unread(unread))
    }
}

impl<T> Retired<T> {
    /// Frees an object after a grace period, in some later call. Must not be called in a read section.
    pub fn push(&self, object: Removed<T>) {
        debug_assert!(!is_in_section(), "the thread may wait for itself");
        let (_, part) = self.parts.local();
        let mut locked = part.lock();
        locked.fresh.push(object);
        for turn in 0.. {
            if locked.fresh.len() < BATCH {
                return;
            }
            let unread = locked.advance();
            if unread.is_none() && locked.fresh.len() < BACKLOG_MAX {
                return;
            }
            drop(locked);
            if unread.is_none() {
                yield_to_readers(turn);
            }
            drop(unread);
            locked = part.lock();
        }
    }

    /// Waits for a grace period, and frees all objects that were removed before. Must not be called in a read section.
    pub fn drain(&self) {
        debug_assert!(!is_in_section(), "the thread waits for itself");
        for part in self.parts.iter() {
            for turn in 0.. {
                let mut locked = part.lock();
                let unread = locked.advance();
                let is_empty = locked.fresh.is_empty() && locked.waiting.is_empty();
                drop(locked);
                if is_empty {
                    break;
                }
                if unread.is_none() {
                    yield_to_readers(turn);
                }
            }
        }
    }
}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        self.drain();
    }
}

impl<T> fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Retired")
    }
}
