//! Worker threads, which take the units of a phase from a shared counter until none is left.
//!
//! # Locking
//! One atomic counter per phase, incremented once per unit. A unit takes some hundred microseconds or more.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::finding::Observer;
use crate::options::{Phase, Progress};

/// The worker threads of all phases.
#[derive(Clone, Copy)]
pub(crate) struct Workers<'a> {
    pub threads: usize,
    pub observer: &'a dyn Observer,
}

impl Workers<'_> {
    /// Calls `body` once per unit, in any order and on all threads. Returns the final state of each worker.
    ///
    /// If the observer cancels, units that were not begun are skipped; the caller must ask the observer again.
    pub fn run<U: Sync, S: Send>(
        &self,
        phase: Phase,
        units: &[U],
        new_state: impl Fn() -> S + Sync,
        body: impl Fn(&mut S, &U) + Sync,
    ) -> Vec<S> {
        let next = AtomicUsize::new(0);
        let finished = AtomicU64::new(0);
        let total = units.len() as u64;
        let work = || {
            let mut state = new_state();
            loop {
                let unit = units.get(next.fetch_add(1, Ordering::Relaxed));
                let Some(unit) = unit.filter(|_| !self.observer.is_cancelled()) else { return state };
                body(&mut state, unit);
                let done = finished.fetch_add(1, Ordering::Relaxed) + 1;
                self.observer.progress(&Progress { phase, done, total });
            }
        };
        let spawned = self.threads.clamp(1, units.len().max(1)) - 1;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..spawned).map(|_| scope.spawn(work)).collect();
            let mut states = vec![work()];
            for thread in threads {
                match thread.join() {
                    Ok(state) => states.push(state),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            states
        })
    }
}
