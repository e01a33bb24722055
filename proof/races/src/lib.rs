//! Model checking of the lock-free code of Xebec.
//!
//! The product's source files are compiled here with the model checker's threads, atomics and locks instead of
//! `base`'s. The checker runs a test many times, each time with another interleaving of its threads ([`try_orders`]).
//! If one fails, it prints a schedule that replays it.
//!
//! | type | property | source file |
//! |---|---|---|
//! | [`append_list::AppendList`] | a reader that sees the length of a list sees its entries; of two concurrent appends one fails | `base/src/append_list.rs` |
//! | [`lock::RawSpinLock`] | one thread at a time holds a spinlock | `base/src/lock/raw_spin.rs` |
//! | [`lock::ReadCount`] | a value that is read without its lock is not written meanwhile; nor if it is locked before it is known whether it is written | `base/src/lock/read_count.rs` |
//! | [`seqlock::SeqLock`] | a reader gets words that were published together, and none that were invalidated before its call | `base/src/seqlock.rs` |
//! | [`rcu::Slot`], [`rcu::Retired`] | an object is not freed in a section that found it | `base/src/rcu` |
//! | [`rcu::SetTable`] | an entry is found as long as it is in the table; one that is found was in it during the section, unless it is marked as removed | `base/src/rcu` |
//! | [`refs::Ref`] | an object is queued once, after its last reference was dropped, in whatever mode they were counted | `base/src/refs` |
//! | [`slab::Slab`] | a key finds its own object or none, and its entry is used by one object at a time | `base/src/slab.rs` |
//! | [`percpu::Counter`] | no unit is granted twice, and none is lost | `base/src/percpu/counter.rs` |
//! | [`engine::grant`] | log space is never granted twice; no thread sleeps while there is space | `journal/src/engine/grant.rs` |
//! | [`engine::context`] | a checkpoint reserves the log space that it takes | `journal/src/engine/cil/context.rs` |
//!
//! # Limits
//! The model is sequentially consistent. Weaker memory orders are justified at the atomics.
#![deny(unsafe_code)]

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

// The product's sources import shared code by this name.
extern crate self as base;

#[path = "../../../base/src/append_list.rs"]
pub mod append_list;
pub mod engine;
pub mod lock;
pub mod percpu;
pub mod rcu;
pub mod refs;
#[path = "../../../base/src/seqlock.rs"]
pub mod seqlock;
#[path = "../../../base/src/slab.rs"]
pub mod slab;

/// The model checker's atomics.
pub mod sync {
    pub use shuttle::hint::spin_loop;
    pub use shuttle::sync::atomic;
    pub use shuttle::thread::yield_now;

    /// Lets another thread run.
    pub fn yield_to_readers(_: u32) {
        yield_now();
    }
}

/// Runs a test with thousands of interleavings: depth-first ones, which are all of a small test; random ones; and ones
/// with few preemptions (PCT).
pub fn try_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    run(Box::new(DfsScheduler::new(Some(PER_SCHEDULER), false)), test.clone());
    try_fair_orders(test);
}

/// Like [`try_orders`], without the depth-first interleavings: in some of them a spinning thread waits for ever.
pub fn try_fair_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    const SEED: u64 = 1;
    const PREEMPTIONS: usize = 3;
    run(Box::new(RandomScheduler::new_from_seed(SEED, PER_SCHEDULER)), test.clone());
    run(Box::new(PctScheduler::new_from_seed(SEED, PREEMPTIONS, PER_SCHEDULER)), test);
}

/// Number of interleavings per scheduler.
const PER_SCHEDULER: usize = 4000;

fn run(scheduler: Box<dyn Scheduler + Send>, test: impl Fn() + Send + Sync + 'static) {
    Runner::new(scheduler, Config::new()).run(test);
}
