//! The parts of Xebec without locks, in every order of their threads' steps.
//!
//! The source files are those of the product, built once more here over the model checker's threads, atomics and locks
//! in place of `base`'s. The checker runs a test again and again, each time with another order of steps
//! ([`try_orders`]). Where one fails, it prints a schedule that replays it.
//!
//! | part | what is tried | file of the product |
//! |---|---|---|
//! | [`appended::Appended`] | who sees the length of a list sees its entries; of two who append one gives way | `base/src/appended.rs` |
//! | [`lock::Taken`] | one thread at a time has a brief lock | `base/src/lock/taken.rs` |
//! | [`percpu::Counter`] | what is granted was there; what is there can be taken | `base/src/percpu/counter.rs` |
//! | [`engine::grant`] | the log is never promised twice; nobody sleeps while there is room | `journal/src/engine/grant.rs` |
//! | [`engine::context`] | a checkpoint is left what it takes of the log | `journal/src/engine/cil/context.rs` |
//!
//! # Limits
//! Steps interleave, but memory is sequentially consistent: what a weaker order of loads could do is argued where the
//! atomics are.
#![forbid(unsafe_code)]

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

// The sources name their shared parts so.
extern crate self as base;

#[path = "../../../base/src/appended.rs"]
pub mod appended;
pub mod engine;
pub mod lock;
pub mod percpu;

/// The model checker's atomics.
pub mod sync {
    pub use shuttle::hint::spin_loop;
    pub use shuttle::sync::atomic;
    pub use shuttle::thread::yield_now;
}

/// Runs a test in thousands of orders of its threads' steps: the first ones of all that there are, which a small test
/// has no more of; some at random; and some in which threads are interrupted rarely, at places that matter.
pub fn try_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    run(Box::new(DfsScheduler::new(Some(EACH), false)), test.clone());
    try_fair_orders(test);
}

/// The same without the first ones of all, where threads wait for each other without sleep: in some of those one waits
/// for ever.
pub fn try_fair_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    const SEED: u64 = 1;
    const INTERRUPTIONS: usize = 3;
    run(Box::new(RandomScheduler::new_from_seed(SEED, EACH)), test.clone());
    run(Box::new(PctScheduler::new_from_seed(SEED, INTERRUPTIONS, EACH)), test);
}

/// Orders that each scheduler tries.
const EACH: usize = 4000;

fn run(scheduler: Box<dyn Scheduler + Send>, test: impl Fn() + Send + Sync + 'static) {
    Runner::new(scheduler, Config::new()).run(test);
}
