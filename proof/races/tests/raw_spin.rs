//! `RawSpinLock`: mutual exclusion.

use std::sync::Arc;

use races::lock::RawSpinLock;
use races::try_fair_orders;
use shuttle::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use shuttle::thread;

#[test]
fn one_thread_at_a_time_holds_the_lock() {
    try_fair_orders(|| {
        let shared = Arc::new((RawSpinLock::new(), AtomicUsize::new(0)));
        let lock_twice = |(lock, inside): &(RawSpinLock, AtomicUsize)| {
            for _ in 0..2 {
                lock.lock();
                assert_eq!(inside.fetch_add(1, Relaxed), 0);
                assert_eq!(inside.fetch_sub(1, Relaxed), 1);
                lock.unlock();
            }
        };
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || lock_twice(&shared))
            })
            .collect();
        lock_twice(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
