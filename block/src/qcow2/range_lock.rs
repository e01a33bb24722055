//! A lock on ranges of clusters.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

/// A lock whose holders have disjoint ranges.
#[derive(Debug, Default)]
pub struct RangeLock {
    locked: Mutex<Vec<Range<u64>>>,
    changed: Condvar,
}

/// The guard of a locked range.
#[derive(Debug)]
pub struct RangeGuard<'l> {
    lock: &'l RangeLock,
    range: Range<u64>,
}

impl RangeLock {
    /// Locks a range; waits until no other thread has a part of it. A thread must not lock a second range.
    pub fn lock(&self, range: Range<u64>) -> RangeGuard<'_> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        while locked.iter().any(|other| other.start < range.end && range.start < other.end) {
            locked = self.changed.wait(locked).unwrap_or_else(PoisonError::into_inner);
        }
        locked.push(range.clone());
        RangeGuard { lock: self, range }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut locked = self.lock.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = locked.iter().position(|range| *range == self.range) {
            locked.swap_remove(index);
        }
        drop(locked);
        self.lock.changed.notify_all();
    }
}
