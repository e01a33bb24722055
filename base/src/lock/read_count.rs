//! Counts the reads of a locked value since it was last written, and lets readers do without the lock if there were
//! many.
//!
//! # Invariants
//! - A value is read without the lock only in a read section ([`rcu`](crate::rcu)), and only while the count is `MANY`.
//! - The count reaches `MANY` while the lock is held for reading, and never decreases except in
//!   [`end_sections`](ReadCount::end_sections), which needs the lock held for writing and waits for the sections.

use crate::percpu;
use crate::rcu::{self, Section};
use crate::sync::atomic::{AtomicU32, Ordering};

/// The number of reads since the value was last written, up to `MANY`. A read by another CPU than that of the read
/// before counts `OTHER_CPU` times: with a lock, it waits for the memory of the lock.
#[derive(Debug, Default)]
pub struct ReadCount<const MANY: u32, const OTHER_CPU: u32 = 1>(AtomicU32);

/// Bits of the count. If it depends on CPUs, that of the last read is above.
const COUNT_BITS: u32 = 16;

impl<const MANY: u32, const OTHER_CPU: u32> ReadCount<MANY, OTHER_CPU> {
    /// No reads.
    pub const fn new() -> Self {
        const { assert!(MANY < 1 << COUNT_BITS) };
        Self(AtomicU32::new(0))
    }

    const fn count(word: u32) -> u32 {
        if OTHER_CPU == 1 { word } else { word & ((1 << COUNT_BITS) - 1) }
    }

    /// Whether the value may be read without the lock until the section ends.
    #[inline]
    pub fn is_read_without_lock(&self, _: &Section) -> bool {
        Self::count(self.0.load(Ordering::Acquire)) == MANY
    }

    /// Calls `read` in a read section if the value may be read without the lock; returns `read` otherwise.
    #[inline]
    pub fn read_without_lock<R, F: FnOnce() -> R>(&self, read: F) -> Result<R, F> {
        if Self::count(self.0.load(Ordering::Relaxed)) < MANY {
            return Err(read);
        }
        rcu::read(|section| match self.is_read_without_lock(section) {
            true => Ok(read()),
            false => Err(read),
        })
    }

    /// Counts a read. The caller holds the lock for reading.
    #[inline]
    pub fn add(&self) {
        let word = self.0.load(Ordering::Relaxed);
        let count = Self::count(word);
        if count < MANY {
            let new = match OTHER_CPU {
                1 => count + 1,
                _ => {
                    let cpu = percpu::current() as u32 & (u32::MAX >> COUNT_BITS);
                    let is_other = count > 0 && word >> COUNT_BITS != cpu;
                    cpu << COUNT_BITS | (count + if is_other { OTHER_CPU } else { 1 }).min(MANY)
                }
            };
            // Several readers count at once. A plain store could decrease the count from `MANY` while others read
            // without the lock. A read that is not counted does no harm.
            let _ = self.0.compare_exchange(word, new, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Sets the count to 0, and waits until no thread reads the value without the lock. The caller holds it for
    /// writing, has not written yet, and is in no read section.
    #[inline]
    pub fn end_sections(&self) {
        // Whatever the count is, so that an error does not depend on how often the value was read.
        debug_assert!(!rcu::is_in_section(), "the thread may wait for itself");
        let word = self.0.load(Ordering::Relaxed);
        if word != 0 {
            self.end_counted(Self::count(word));
        }
    }

    #[cold]
    fn end_counted(&self, count: u32) {
        self.0.store(0, Ordering::Relaxed);
        if count == MANY {
            rcu::grace_period().wait();
        }
    }
}
