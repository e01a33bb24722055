//! Counts the reads of a locked value since it was last written, and lets readers do without the lock if there were
//! many.
//!
//! # Invariants
//! - A value is read without the lock only in a read section ([`rcu`](crate::rcu)), and only while the count is `MANY`.
//! - The count reaches `MANY` while the lock is held for reading, and never decreases except in
//!   [`end_sections`](ReadCount::end_sections), which needs the lock held for writing and waits for the sections.

use crate::rcu;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The number of reads since the value was last written, up to `MANY`.
#[derive(Debug, Default)]
pub struct ReadCount<const MANY: u32>(AtomicU32);

impl<const MANY: u32> ReadCount<MANY> {
    /// No reads.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Calls `read` in a read section if the value may be read without the lock; returns `read` otherwise.
    #[inline]
    pub fn read_without_lock<R, F: FnOnce() -> R>(&self, read: F) -> Result<R, F> {
        if self.0.load(Ordering::Relaxed) < MANY {
            return Err(read);
        }
        rcu::read(|_| match self.0.load(Ordering::Acquire) == MANY {
            true => Ok(read()),
            false => Err(read),
        })
    }

    /// Counts a read. The caller holds the lock for reading.
    #[inline]
    pub fn add(&self) {
        let reads = self.0.load(Ordering::Relaxed);
        if reads < MANY {
            // Several readers count at once. A plain store could decrease the count from `MANY` while others read
            // without the lock. A read that is not counted does no harm.
            let _ = self.0.compare_exchange(reads, reads + 1, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Sets the count to 0, and waits until no thread reads the value without the lock. The caller has just locked it
    /// for writing.
    #[inline]
    pub fn end_sections(&self) {
        let reads = self.0.load(Ordering::Relaxed);
        if reads != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
        if reads == MANY {
            rcu::grace_period().wait();
        }
    }
}
