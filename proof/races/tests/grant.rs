//! Log space is never granted twice, and no thread sleeps while there is space: the checker fails a run in which all
//! threads sleep.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use races::engine::grant::{GrantHead, GrantPositions, TailPusher};
use races::engine::shutdown::Shutdown;
use races::percpu::override_current;
use races::try_orders;
use shuttle::thread;

/// Ignores requests to move the tail: the tests move it.
struct NoTailPusher;

impl TailPusher for NoTailPusher {
    fn push_tail_to(&self, _: u64) {}
}

const UNIT: u32 = 512;
/// Bytes that may be in use; an eighth of them is reserved for transactions that roll.
const LIMIT: u64 = 1000;

fn grant(head: u64) -> Arc<GrantHead> {
    Arc::new(GrantHead::new(LIMIT + 8 * u64::from(UNIT) + 4096, UNIT, GrantPositions { tail: 0, head }))
}

/// Bytes granted to the test's threads. An ordinary atomic, because it is not part of the model.
#[derive(Default)]
struct GrantedBytes(AtomicU64);

impl GrantedBytes {
    fn take(&self, bytes: u64) {
        assert!(self.0.fetch_add(bytes, SeqCst) + bytes <= LIMIT, "log space was granted twice");
    }
    fn give(&self, bytes: u64) {
        self.0.fetch_sub(bytes, SeqCst);
    }
}

fn threads_share_the_log(needs: [u64; 2], rounds: u32) {
    try_orders(move || {
        let (grant, held) = (grant(0), Arc::new(GrantedBytes::default()));
        let threads = [0, 1].map(|cpu| {
            let (grant, held) = (Arc::clone(&grant), Arc::clone(&held));
            let need = needs[cpu];
            thread::spawn(move || {
                override_current(Some(cpu));
                for _ in 0..rounds {
                    grant.reserve(need, &NoTailPusher).unwrap();
                    held.take(need);
                    held.give(need);
                    grant.give_back(need);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        grant.drain_cpu_caches();
        assert_eq!(grant.head(), 0, "all space is returned");
    });
}

#[test]
fn two_reservations_that_do_not_fit_together_are_granted_in_turn() {
    threads_share_the_log([600, 600], 1);
}

#[test]
fn cached_space_is_returned_to_a_waiting_thread() {
    threads_share_the_log([10, 870], 1);
}

#[test]
fn repeated_reservations_are_granted() {
    threads_share_the_log([500, 400], 2);
}

#[test]
fn a_new_tail_wakes_waiting_threads() {
    try_orders(|| {
        let grant = grant(900);
        let waiter = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.reserve(300, &NoTailPusher).unwrap())
        };
        grant.advance_tail(400);
        waiter.join().unwrap();
        assert!(grant.head() <= grant.tail() + LIMIT);
    });
}

/// A thread that drains the caches has their space for a moment. A thread that started to wait meanwhile found neither
/// cached space nor a lower head, and was not woken afterwards.
#[test]
fn draining_the_caches_wakes_waiting_threads() {
    try_orders(|| {
        let grant = grant(0);
        // This leaves some space in the cache of a CPU.
        grant.reserve(10, &NoTailPusher).unwrap();
        grant.give_back(10);
        let drainer = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.drain_cpu_caches())
        };
        let waiter = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.reserve(870, &NoTailPusher).unwrap())
        };
        drainer.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn rolling_transactions_are_granted_first_and_within_the_log() {
    try_orders(|| {
        let grant = grant(800);
        let rolling = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || {
                grant.regrant(300, &NoTailPusher).unwrap();
                assert!(grant.head() <= grant.tail() + LIMIT, "it continued before there was space");
                grant.give_back(300);
            })
        };
        let new = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.reserve(200, &NoTailPusher).unwrap())
        };
        grant.advance_tail(500);
        rolling.join().unwrap();
        new.join().unwrap();
    });
}

#[test]
fn a_shutdown_wakes_all_waiting_threads() {
    try_orders(|| {
        let grant = grant(900);
        let waiters = [0, 1].map(|cpu| {
            let grant = Arc::clone(&grant);
            thread::spawn(move || {
                if cpu == 0 { grant.reserve(300, &NoTailPusher) } else { grant.regrant(300, &NoTailPusher) }
            })
        });
        grant.close();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(Shutdown::Already));
        }
    });
}
