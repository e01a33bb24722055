#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::{SchedulingStrategy, SimulationOptions, SimulationReport, now, run};
use crate::lock::{Condvar, Mutex, Rank, RwLock};
use crate::thread;

fn plan(seed: u64) -> SimulationOptions {
    SimulationOptions {
        stalls_per_million: 1000,
        spurious_per_million: 1000,
        cpus: 3,
        ..SimulationOptions::new(seed, SchedulingStrategy::of_seed(seed, 300))
    }
}

/// Threads read a number, are preempted, and write it back: updates are lost unless they hold the lock.
fn count(seed: u64, locked: bool) -> (u64, SimulationReport) {
    run(plan(seed), || {
        let (number, lock) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Rank::Leaf, ())));
        let body = |number: Arc<AtomicU64>, lock: Arc<Mutex<()>>| {
            move || {
                for _ in 0..20 {
                    let guard = locked.then(|| lock.lock());
                    let read = number.load(SeqCst);
                    thread::preemption_point();
                    number.store(read + 1, SeqCst);
                    drop(guard);
                }
            }
        };
        let start = |_| thread::spawn("counter", body(Arc::clone(&number), Arc::clone(&lock))).unwrap();
        let threads: Vec<_> = (0..3).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        number.load(SeqCst)
    })
}

#[test]
fn a_lock_prevents_lost_updates_and_its_absence_is_detected() {
    assert!((0..20).all(|seed| count(seed, true).0 == 60));
    assert!((0..20).any(|seed| count(seed, false).0 < 60));
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..10 {
        assert_eq!(count(seed, true), count(seed, true));
    }
    assert_ne!(count(2, true).1.trace, count(4, true).1.trace);
}

#[test]
fn time_is_virtual_and_moves_to_the_next_deadline() {
    let ((), report) = run(plan(3), || {
        let sleeper = thread::spawn("sleeper", || thread::sleep(Duration::from_secs(3600))).unwrap();
        let state = Mutex::new(Rank::Leaf, ());
        let changed = Condvar::new();
        let mut guard = state.lock();
        while now().unwrap() < Duration::from_secs(60) {
            changed.wait_for(&mut guard, Duration::from_secs(60));
        }
        drop(guard);
        assert!(now().unwrap() < Duration::from_secs(3600));
        sleeper.join().unwrap();
    });
    assert!(report.elapsed >= Duration::from_secs(3600));
    assert_eq!(report.threads, 2);
}

#[test]
fn a_waiter_is_notified_and_readers_share_the_lock() {
    for seed in 0..20 {
        run(plan(seed), || {
            let shared = Arc::new((Mutex::new(Rank::Folio, 0), Condvar::new(), RwLock::new(Rank::Cache, 0)));
            let threads: Vec<_> = (1..=4)
                .map(|turn| {
                    let shared = Arc::clone(&shared);
                    let body = move || {
                        let (next, changed, value) = &*shared;
                        let before = *value.read();
                        let mut guard = next.lock();
                        while *guard != turn - 1 {
                            changed.wait(&mut guard);
                        }
                        *guard = turn;
                        drop(guard);
                        changed.notify_all();
                        *value.write() += 1;
                        before
                    };
                    thread::spawn("turn", body).unwrap()
                })
                .collect();
            let seen: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(seen.iter().all(|before| *before < 4));
            assert_eq!((*shared.0.lock(), *shared.2.read()), (4, 4));
        });
    }
}

/// Polling terminates even if only the passage of time can end it.
#[test]
fn time_advances_while_a_thread_yields() {
    run(plan(0), || {
        let done = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&done);
        let late = move || {
            thread::sleep(Duration::from_secs(100));
            own.store(1, SeqCst);
        };
        let late = thread::spawn("late", late).unwrap();
        while done.load(SeqCst) == 0 {
            thread::yield_now();
        }
        late.join().unwrap();
    });
}
