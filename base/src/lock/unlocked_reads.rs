//! Debug builds count the reads of mutexes that took no lock, so that a test can say that there were some.

#[cfg(debug_assertions)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts a read of this thread.
    pub fn count() {
        COUNT.set(COUNT.get() + 1);
    }

    /// Number of values of a [`Mutex`](super::super::Mutex) that this thread has read without the lock.
    pub fn unlocked_reads() -> u64 {
        COUNT.get()
    }
}

#[cfg(debug_assertions)]
pub use counted::{count, unlocked_reads};

/// Counts nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub const fn count() {}
