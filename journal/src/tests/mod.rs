//! Tests of whole logs, on a small volume in memory.
//!
//! | file | subject |
//! |---|---|
//! | `volume` | the volume: a superblock, and a log that [`crate::synth`] writes |
//! | `items` | log items as bytes |
//! | `locating` | head and tail: laps, torn and misordered writes, damage |
//! | `assembling` | transactions cut and interleaved |
//! | `recovering` | what each type of item does, and what stays |
//! | `hostile` | flipped bits: nothing panics, loops, or takes memory without bound |

mod assembling;
mod hostile;
mod items;
mod locating;
mod recovering;
pub mod volume;
