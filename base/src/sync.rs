//! Atomics, and waiting without sleep, for code without locks, where a model checker can take their place:
//! `proof/races` builds the same source files over its own.

pub use std::hint::spin_loop;
pub use std::sync::atomic;

pub use crate::thread::yield_now;
