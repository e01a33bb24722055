//! A deterministic scheduler for the engine's threads: one runs at a time, a seed decides which, and time is virtual.
//!
//! [`run`] executes a closure as the first simulated thread. Threads that it starts through [`crate::thread`] are
//! simulated too. Control passes from one thread to another only at *preemption points*: before a lock is taken, when
//! a thread waits for a lock, a condition variable or the end of another thread, when it sleeps or yields, and at
//! [`crate::thread::preemption_point`]. The same seed gives the same run, step by step, however busy the machine is.
//! Only builds with debug assertions can simulate, as only they check the ranks of locks.
//!
//! | part | subject |
//! |---|---|
//! | [`Plan`] | the seed, how often threads are preempted and stopped, how many CPUs they see |
//! | [`run`], [`Report`] | one run, and what it was |
//! | `world` | threads, their states, virtual time, the choice of the next thread |
//! | `seam` | what `lock`, `thread` and `percpu` call |
//!
//! # Invariants
//! - Of the threads of one run only the one that was chosen executes; the others wait for their turn. Several runs may
//!   execute in one process, each with threads of its own.
//! - Virtual time passes a little with each step, and otherwise only when no thread can run: then it moves to the next
//!   deadline. No decision depends on real time.
//! - Where no thread can run and no deadline is left, the run has failed: it is a deadlock.
//! - A run fails by [`Plan::fail`], which does not return: threads in the middle of a change cannot be unwound.
//!
//! # Limits
//! Steps interleave at preemption points only, and memory is sequentially consistent. Parts that depend on weaker
//! orders or finer steps are tested by `proof/races`.

pub(crate) mod seam;
#[cfg(debug_assertions)]
mod world;

use std::time::Duration;

pub use seam::is_simulated;
#[cfg(debug_assertions)]
pub use seam::{now, random, run};

/// How one run is scheduled.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything that is random.
    pub seed: u64,
    /// How the next thread is chosen.
    pub strategy: Strategy,
    /// Of a million preemption points, at how many a thread is stopped for [`Plan::stall`], whatever it holds.
    pub stalls_per_million: u32,
    /// How long a stopped thread is stopped, in virtual time.
    pub stall: Duration,
    /// Of a million preemption points, at how many a thread that waits for a notification wakes up without one.
    pub spurious_per_million: u32,
    /// How many CPUs the threads believe to run on.
    pub cpus: usize,
    /// More steps than this are taken for a livelock: the run fails.
    pub steps_max: u64,
    /// Reports why the run failed, and ends the process.
    pub fail: fn(&str) -> !,
}

/// How the next thread is chosen at a preemption point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// With this chance in a thousand any thread that can run is chosen at random; else the current one goes on.
    Random {
        /// The chance.
        per_mille: u32,
    },
    /// Threads have random priorities, and the highest one that can run does. At so many of a million points the
    /// current thread gets the lowest priority of all (Burckhardt and others, "A randomized scheduler with
    /// probabilistic guarantees of finding bugs", 2010).
    Priorities {
        /// The chance of a change.
        changes_per_million: u32,
    },
}

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Preemption points.
    pub steps: u64,
    /// How often another thread was chosen.
    pub switches: u64,
    /// How often a thread was stopped.
    pub stalls: u64,
    /// Threads that ran.
    pub threads: usize,
    /// Virtual time at the end.
    pub elapsed: Duration,
    /// A hash of all choices: equal for two runs that did the same.
    pub trace: u64,
}

#[cfg(all(test, debug_assertions))]
mod tests;
