//! Model checking of the lock-free parts of Xebec: tests run in every order of their threads' steps.
//!
//! The source files are those of the product, built again with the model checker's threads, atomics and locks in place
//! of `base`'s. The checker runs a test again and again, each time with another order of steps ([`try_orders`]). If one
//! fails, it prints a schedule that replays it.
//!
//! | part | property | file of the product |
//! |---|---|---|
//! | [`append_list::AppendList`] | a reader that sees the length of a list sees its entries; of two concurrent appends one fails | `base/src/append_list.rs` |
//! | [`lock::RawSpinLock`] | one thread at a time holds a spinlock | `base/src/lock/raw_spin.rs` |
//! | [`percpu::Counter`] | nothing is granted twice; what is there can be taken | `base/src/percpu/counter.rs` |
//! | [`engine::grant`] | log space is never granted twice; no thread sleeps while there is space | `journal/src/engine/grant.rs` |
//! | [`engine::context`] | a checkpoint reserves the log space that it takes | `journal/src/engine/cil/context.rs` |
//!
//! # Limits
//! Steps interleave, but memory is sequentially consistent. Weaker memory orders are justified where the atomics are.
#![forbid(unsafe_code)]

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

// The name by which the product's sources import their shared parts.
extern crate self as base;

#[path = "../../../base/src/append_list.rs"]
pub mod append_list;
pub mod engine;
pub mod lock;
pub mod percpu;

/// The model checker's atomics.
pub mod sync {
    pub use shuttle::hint::spin_loop;
    pub use shuttle::sync::atomic;
    pub use shuttle::thread::yield_now;
}

/// Runs a test in thousands of orders of its threads' steps: the first ones in depth-first order, which are all orders
/// of a small test; random ones; and some in which threads are preempted rarely, at places that matter.
pub fn try_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    run(Box::new(DfsScheduler::new(Some(EACH), false)), test.clone());
    try_fair_orders(test);
}

/// Like [`try_orders`], without the depth-first orders: when threads spin for each other, one of them waits for ever in
/// some of those.
pub fn try_fair_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    const SEED: u64 = 1;
    const INTERRUPTIONS: usize = 3;
    run(Box::new(RandomScheduler::new_from_seed(SEED, EACH)), test.clone());
    run(Box::new(PctScheduler::new_from_seed(SEED, INTERRUPTIONS, EACH)), test);
}

/// Number of orders for each scheduler.
const EACH: usize = 4000;

fn run(scheduler: Box<dyn Scheduler + Send>, test: impl Fn() + Send + Sync + 'static) {
    Runner::new(scheduler, Config::new()).run(test);
}
