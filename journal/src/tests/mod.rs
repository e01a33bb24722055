//! Tests of complete logs, on a small volume in memory.
//!
//! | file | subject |
//! |---|---|
//! | `volume` | the volume: a superblock, and a log written by [`crate::synth`] |
//! | `items` | log items as bytes |
//! | `locating` | head and tail: wrap-around, torn and misordered writes, damage |
//! | `assembling` | transactions that are split and interleaved |
//! | `recovering` | replay of each item type, and what stays |
//! | `hostile` | flipped bits: no panic, endless loop or unbounded memory |

mod assembling;
mod hostile;
mod items;
mod locating;
mod recovering;
pub mod volume;
