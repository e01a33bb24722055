//! Atomics for code without locks, where a model checker can take their place: `proof/races` builds the same source
//! files over its own.

pub use std::sync::atomic;
