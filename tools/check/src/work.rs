//! Workers: threads that take units of work from one counter until none is left.
//!
//! # Locking
//! One atomic counter per phase, touched once per unit; a unit is some hundred microseconds of work or more.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::finding::Observer;
use crate::options::{Phase, Progress};

/// The crowd that works on a phase.
#[derive(Clone, Copy)]
pub(crate) struct Crew<'a> {
    pub threads: usize,
    pub observer: &'a dyn Observer,
}

impl Crew<'_> {
    /// Runs `body` once for each of `units`, in any order, on every thread; returns each worker's state at its end.
    ///
    /// Units that were not begun when the observer cancels are left out; the caller asks the observer again.
    pub fn run<S: Send>(
        &self,
        phase: Phase,
        units: usize,
        new: impl Fn() -> S + Sync,
        body: impl Fn(&mut S, usize) + Sync,
    ) -> Vec<S> {
        let next = AtomicUsize::new(0);
        let done = AtomicU64::new(0);
        let total = units as u64;
        let work = || {
            let mut state = new();
            loop {
                let unit = next.fetch_add(1, Ordering::Relaxed);
                if unit >= units || self.observer.is_cancelled() {
                    return state;
                }
                body(&mut state, unit);
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                self.observer.progress(&Progress { phase, done, total });
            }
        };
        let helpers = self.threads.clamp(1, units.max(1)) - 1;
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
            let mut states = vec![work()];
            for other in others {
                match other.join() {
                    Ok(state) => states.push(state),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            states
        })
    }
}
