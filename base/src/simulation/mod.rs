//! A deterministic scheduler for the engine's threads: one thread runs at a time, a seed selects which, and time is
//! virtual.
//!
//! [`run`] executes a closure as the first simulated thread. Threads started through [`crate::thread`] are simulated
//! too. Control passes between threads only at *preemption points*: before a lock is taken, when a thread waits for a
//! lock, a condition variable or the end of another thread, when it sleeps or yields, and at
//! [`crate::thread::preemption_point`]. The same seed gives the same run, step by step, independent of the load of the
//! machine. Simulation needs debug assertions, because only these builds record the ranks of locks.
//!
//! | part | subject |
//! |---|---|
//! | [`SimulationOptions`] | the seed, the rates of preemption and stalls, the number of CPUs |
//! | [`run`], [`SimulationReport`] | one run and its statistics |
//! | `scheduler` | threads, their states, virtual time, the choice of the next thread |
//! | `hooks` | the hooks that `lock`, `thread` and `percpu` call |
//!
//! # Invariants
//! - Of the threads of a run only the selected one executes; the others wait. Several runs may execute in one process,
//!   each with its own threads.
//! - Virtual time advances a little with each step, and otherwise only when no thread can run: then it moves to the
//!   next deadline. No decision depends on real time.
//! - If no thread can run and there is no deadline, the run has failed with a deadlock.
//! - A failed run calls [`SimulationOptions::fail`], which does not return: threads in the middle of a change cannot be
//!   unwound.
//!
//! # Limits
//! Steps interleave at preemption points only, and memory is sequentially consistent. `proof/races` tests the code that
//! depends on weaker memory orders or finer steps.

pub(crate) mod hooks;
#[cfg(debug_assertions)]
mod scheduler;

use std::io::Write as _;
use std::time::Duration;

pub use hooks::is_simulated;
#[cfg(debug_assertions)]
pub use hooks::{now, random, run};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    /// Seed of all random choices.
    pub seed: u64,
    /// How to select the next thread.
    pub strategy: SchedulingStrategy,
    /// Rate per million preemption points at which a thread stalls for [`SimulationOptions::stall`], while holding any
    /// locks.
    pub stalls_per_million: u32,
    /// Duration of a stall in virtual time.
    pub stall: Duration,
    /// Rate per million preemption points of spurious wakeups of a thread that waits for a notification.
    pub spurious_per_million: u32,
    /// Number of CPUs that the threads see.
    pub cpus: usize,
    /// Maximum number of steps: more are a livelock, and the run fails.
    pub steps_max: u64,
    /// Reports the failure of a run and ends the process.
    pub fail: fn(&str) -> !,
}

impl SimulationOptions {
    /// A schedule without stalls and spurious wakeups, on two CPUs, of at most ten million steps. If the run fails, the
    /// process prints why and aborts. A stall, if there are to be any, takes a second.
    pub fn new(seed: u64, strategy: SchedulingStrategy) -> Self {
        Self {
            seed,
            strategy,
            stalls_per_million: 0,
            stall: Duration::from_secs(1),
            spurious_per_million: 0,
            cpus: 2,
            steps_max: 10_000_000,
            fail: abort,
        }
    }
}

fn abort(why: &str) -> ! {
    // Without standard error, the signal alone reports the failure.
    let _ = writeln!(std::io::stderr(), "{why}");
    std::process::abort()
}

/// How to select the next thread at a preemption point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingStrategy {
    /// With a fixed probability a random runnable thread; otherwise the current one continues.
    Random {
        /// The probability in thousandths.
        per_mille: u32,
    },
    /// The runnable thread with the highest random priority. At a fixed rate of points the current thread gets the
    /// lowest priority (Burckhardt and others, "A randomized scheduler with probabilistic guarantees of finding bugs",
    /// 2010).
    Priorities {
        /// The rate of priority changes per million points.
        changes_per_million: u32,
    },
}

impl SchedulingStrategy {
    /// Each strategy for every other seed: random with this probability in thousandths, or priorities that change
    /// often.
    pub fn of_seed(seed: u64, per_mille: u32) -> Self {
        match seed % 2 {
            0 => Self::Random { per_mille },
            _ => Self::Priorities { changes_per_million: 20_000 },
        }
    }
}

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimulationReport {
    /// Number of preemption points.
    pub steps: u64,
    /// Number of switches to another thread.
    pub switches: u64,
    /// Number of stalls.
    pub stalls: u64,
    /// Number of threads.
    pub threads: usize,
    /// Virtual time at the end.
    pub elapsed: Duration,
    /// A hash of all choices: equal for identical runs.
    pub trace: u64,
}

#[cfg(all(test, debug_assertions))]
mod tests;
