//! Atomics and spinning for lock-free code. A model checker can replace them: `proof/races` builds the same source
//! files with its own.

pub use std::hint::spin_loop;
pub use std::sync::atomic;

pub use crate::thread::yield_now;
