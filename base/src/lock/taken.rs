//! Who has a lock that nobody sleeps for.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{spin_loop, yield_now};

/// Tries before other threads are let run.
const TRIES: u32 = 64;

/// Whether somebody has a lock.
///
/// # Invariants
/// Between [`take`](Self::take) and [`give_back`](Self::give_back) no other thread's `take` returns, and what was
/// written in between is seen by who takes it next.
#[derive(Debug)]
pub struct Taken(AtomicBool);

impl Default for Taken {
    fn default() -> Self {
        Self::new()
    }
}

impl Taken {
    /// By nobody.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Waits until nobody has it, and has it then.
    #[inline]
    pub fn take(&self) {
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        loop {
            for _ in 0..TRIES {
                // Looking alone does not take the line away from who has the lock.
                if !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Acquire) {
                    return;
                }
                spin_loop();
            }
            yield_now();
        }
    }

    /// Gives it back. Only who took it does.
    #[inline]
    pub fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }
}
