//! Atomics and spinning for lock-free code. A model checker can replace them: `proof/races` builds the same source
//! files with its own.

pub use std::hint::spin_loop;
pub use std::sync::atomic;

pub use crate::thread::yield_now;

/// Waits for threads in read sections to go on, for the `turn`th time, from 0. Yields at first. A thread of a real-time
/// class that only yielded would keep the CPU from a reader that was preempted on it, so later turns sleep.
///
/// Simulated threads are not switched in sections, so that a simulated thread only ever waits for a thread outside of
/// the simulation, which must not change the order of its threads: the time is that of the machine.
pub fn yield_to_readers(turn: u32) {
    const YIELDS: u32 = 300;
    const PAUSE: std::time::Duration = std::time::Duration::from_micros(20);
    match turn < YIELDS {
        true => std::thread::yield_now(),
        false => std::thread::sleep(PAUSE),
    }
}
