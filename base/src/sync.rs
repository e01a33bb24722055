//! Atomics and spinning for lock-free code. A model checker can replace them: `proof/races` builds the same source
//! files with its own.

pub use std::hint::spin_loop;
pub use std::sync::atomic;

/// Yields to a thread in a read section. Simulated threads are not switched in sections, so that a simulated thread
/// only ever waits for a thread outside of the simulation, which must not change the order of its threads.
pub use std::thread::yield_now as yield_to_readers;

pub use crate::thread::yield_now;
