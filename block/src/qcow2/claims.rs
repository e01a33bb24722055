//! Ranges of clusters that one thread at a time gives new places in the file.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

/// The ranges that are claimed now. They do not overlap.
#[derive(Debug, Default)]
pub struct Claims {
    active: Mutex<Vec<Range<u64>>>,
    changed: Condvar,
}

/// A claim, until it is dropped.
#[derive(Debug)]
pub struct Claim<'c> {
    claims: &'c Claims,
    range: Range<u64>,
}

impl Claims {
    /// Waits until nobody else has a part of this range, and claims it. A thread has one claim at most.
    pub fn take(&self, range: Range<u64>) -> Claim<'_> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        while active.iter().any(|other| other.start < range.end && range.start < other.end) {
            active = self.changed.wait(active).unwrap_or_else(PoisonError::into_inner);
        }
        active.push(range.clone());
        Claim { claims: self, range }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut active = self.claims.active.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = active.iter().position(|range| *range == self.range) {
            active.swap_remove(at);
        }
        drop(active);
        self.claims.changed.notify_all();
    }
}
