//! The log is never promised twice, and nobody sleeps while there is room: the checker ends a run in which all threads
//! sleep.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use races::engine::grant::{Grant, Pressure};
use races::engine::halt::Halt;
use races::percpu::pretend;
use races::try_orders;
use shuttle::thread;

/// Nobody moves the tail when asked: the tests do.
struct NoPressure;

impl Pressure for NoPressure {
    fn move_tail_to(&self, _: u64) {}
}

const UNIT: u32 = 512;
/// Bytes that may be in use; an eighth of them is for transactions that roll.
const LIMIT: u64 = 1000;

fn grant(head: u64) -> Arc<Grant> {
    Arc::new(Grant::new(LIMIT + 8 * u64::from(UNIT) + 4096, UNIT, (0, head)))
}

/// Bytes that the test's threads hold. Not one of the checker's atomics: it is no part of what is tried.
#[derive(Default)]
struct Held(AtomicU64);

impl Held {
    fn take(&self, bytes: u64) {
        assert!(self.0.fetch_add(bytes, SeqCst) + bytes <= LIMIT, "the log is promised twice");
    }
    fn give(&self, bytes: u64) {
        self.0.fetch_sub(bytes, SeqCst);
    }
}

fn threads_share_the_log(needs: [u64; 2], rounds: u32) {
    try_orders(move || {
        let (grant, held) = (grant(0), Arc::new(Held::default()));
        let threads = [0, 1].map(|cpu| {
            let (grant, held) = (Arc::clone(&grant), Arc::clone(&held));
            let need = needs[cpu];
            thread::spawn(move || {
                pretend(cpu);
                for _ in 0..rounds {
                    grant.reserve(need, &NoPressure).unwrap();
                    held.take(need);
                    held.give(need);
                    grant.give_back(need);
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        grant.gather();
        assert_eq!(grant.head(), 0, "all came back");
    });
}

#[test]
fn two_that_do_not_fit_together_take_turns() {
    threads_share_the_log([600, 600], 1);
}

#[test]
fn stocks_go_back_to_whom_they_lack() {
    threads_share_the_log([10, 870], 1);
}

#[test]
fn many_rounds() {
    threads_share_the_log([500, 400], 2);
}

#[test]
fn a_new_tail_wakes_who_waits() {
    try_orders(|| {
        let grant = grant(900);
        let waiter = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.reserve(300, &NoPressure).unwrap())
        };
        grant.advance_tail(400);
        waiter.join().unwrap();
        assert!(grant.head() <= grant.tail() + LIMIT);
    });
}

/// Who gathers the stocks holds their space for a moment: a thread that came to wait in it found neither stocks nor a
/// lower head, and nobody woke it afterwards.
#[test]
fn who_gathers_the_stocks_wakes_who_waits() {
    try_orders(|| {
        let grant = grant(0);
        // Some of what this leaves is in the stock of a CPU.
        grant.reserve(10, &NoPressure).unwrap();
        grant.give_back(10);
        let gathers = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.gather())
        };
        let waiter = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.reserve(870, &NoPressure).unwrap())
        };
        gathers.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn who_rolls_goes_first_and_never_beyond_the_log() {
    try_orders(|| {
        let grant = grant(800);
        let rolling = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || {
                grant.reserve_rolling(300, &NoPressure).unwrap();
                assert!(grant.head() <= grant.tail() + LIMIT, "it went on before there was room");
                grant.give_back(300);
            })
        };
        let new = {
            let grant = Arc::clone(&grant);
            thread::spawn(move || grant.reserve(200, &NoPressure).unwrap())
        };
        grant.advance_tail(500);
        rolling.join().unwrap();
        new.join().unwrap();
    });
}

#[test]
fn all_that_wait_learn_of_the_end() {
    try_orders(|| {
        let grant = grant(900);
        let waiters = [0, 1].map(|cpu| {
            let grant = Arc::clone(&grant);
            thread::spawn(move || {
                if cpu == 0 {
                    grant.reserve(300, &NoPressure)
                } else {
                    grant.reserve_rolling(300, &NoPressure)
                }
            })
        });
        grant.close();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(Halt::Closed));
        }
    });
}
