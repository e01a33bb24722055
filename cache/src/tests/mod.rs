//! Tests of the whole crate on [`testing::Volume`](crate::testing::Volume). A new one belongs where its subject is:
//!
//! | file | subject |
//! |---|---|
//! | `bytes` | what is read is what was written: random operations against a model |
//! | `order` | what a power cut leaves |
//! | `faults` | what fails, and what is told of it |
//! | `amounts` | device writes, budgets, reservations, ages |
//! | `crowd` | many threads, many files |
//! | `schedules` | threads that are stopped anywhere |

mod amounts;
mod bytes;
mod crowd;
mod faults;
mod order;
#[cfg(debug_assertions)]
mod schedules;

use std::sync::Arc;

use base::random::mix;

use crate::testing::Volume;
use crate::{Cache, Contents, Options};

/// The next number of a sequence.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % below.max(1)
    }
}

/// What is read past memory: more than a few blocks.
pub const BYPASS_BYTES: u64 = 20_000;

/// A cache over a volume that is small enough for every limit to matter.
pub fn cache(volume: &Volume, cache_bytes: u64) -> Arc<Cache<Volume>> {
    let options =
        Options { cache_bytes: Some(cache_bytes), bypass_bytes: BYPASS_BYTES, ..Options::default() };
    Cache::new(volume.clone(), options)
}

/// A file of it.
pub fn file(cache: &Arc<Cache<Volume>>, ino: u64) -> Arc<Contents<Volume>> {
    Contents::new(cache, ino).unwrap()
}
