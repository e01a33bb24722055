//! The state of a spinlock, without the protected value.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{spin_loop, yield_now};

/// Attempts before the waiter yields.
const TRIES: u32 = 64;

/// A spinlock without a value.
///
/// # Invariants
/// Between [`lock`](Self::lock) and [`unlock`](Self::unlock) no other thread's `lock` returns, and the next
/// thread whose `lock` returns sees everything written in between.
#[derive(Debug)]
pub struct RawSpinLock(AtomicBool);

impl Default for RawSpinLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RawSpinLock {
    /// An unlocked spinlock.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Spins until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) {
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        loop {
            for _ in 0..TRIES {
                // A plain load does not take the cache line away from the holder.
                if !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Acquire) {
                    return;
                }
                spin_loop();
            }
            yield_now();
        }
    }

    /// Releases the lock. Only its holder calls this.
    #[inline]
    pub fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}
