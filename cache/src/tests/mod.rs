//! Tests of the whole crate on [`testing::Volume`](crate::testing::Volume). Add a test where its subject is:
//!
//! | file | subject |
//! |---|---|
//! | `bulk` | bulk writes |
//! | `bytes` | random operations against a model |
//! | `order` | the state after a power cut |
//! | `faults` | failures, and how they are reported |
//! | `dirty` | which files are written, when and in which order |
//! | `amounts` | device writes, budgets, reservations |
//! | `crowd` | many threads, many files |
//! | `reclaim` | which folios are dropped |
//! | `flushers` | several flushers, and syncs, preempted anywhere |
//! | `schedules` | threads preempted anywhere |

mod amounts;
mod bulk;
mod bytes;
mod crowd;
mod dirty;
mod faults;
#[cfg(debug_assertions)]
mod flushers;
mod order;
mod reclaim;
#[cfg(debug_assertions)]
mod schedules;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use base::memory::Share;
use base::percpu::CpuRef;
use base::random::mix;
use base::time::{Clock, Time};

use crate::testing::Volume;
use crate::{Cache, Contents, Options};

/// A clock set by the test, in seconds.
#[derive(Debug, Default)]
pub struct Hands(pub AtomicI64);

impl Clock for Hands {
    fn now(&self) -> Time {
        Time { seconds: self.0.load(SeqCst), nanos: 0 }
    }
}

/// A random number generator.
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

/// Size from which reads bypass folios: more than a few blocks.
pub const BYPASS_BYTES: u64 = 20_000;

/// Returns a cache small enough for every limit to matter.
pub fn cache(volume: &Volume, cache_bytes: u64) -> Arc<Cache<Volume>> {
    let options = Options { bypass_bytes: BYPASS_BYTES, ..Options::default() };
    Cache::new(volume.clone(), volume.device(), Share::alone(cache_bytes), options)
}

/// Returns the contents of a file.
pub fn file(cache: &Arc<Cache<Volume>>, ino: u64) -> Arc<Contents<Volume>> {
    Contents::new(&CpuRef::new(cache), ino).unwrap()
}
