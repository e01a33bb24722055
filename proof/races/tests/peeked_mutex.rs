//! A mutex whose value is read without it, until a thread that has locked it changes the value.

use std::sync::{Arc, PoisonError};

use races::lock::ReadCount;
use races::{percpu, rcu, try_fair_orders};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

/// Two words that are equal, except while they are changed.
struct Pair {
    lock: Mutex<()>,
    reads: ReadCount<4, 2>,
    words: [AtomicU64; 2],
}

impl Pair {
    fn expect_equal(&self) {
        let first = self.words[0].load(SeqCst);
        assert_eq!(self.words[1].load(SeqCst), first, "read while it is changed");
    }

    /// Like `Mutex::peek_in`: never waits.
    fn peek(&self) -> bool {
        rcu::read(|section| {
            let is_peeked = self.reads.is_read_without_lock(section);
            if is_peeked {
                self.expect_equal();
            } else if let Ok(_locked) = self.lock.try_lock() {
                self.reads.add();
            }
            is_peeked
        })
    }

    /// Reads with the lock; changes the value if `changes`. Others may read it until then.
    fn lock(&self, changes: bool) {
        let _locked = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.expect_equal();
        if changes {
            self.reads.end_sections();
            for word in &self.words {
                word.fetch_add(1, SeqCst);
            }
        }
    }
}

/// Two changes, so that readers without the lock come before, between and after them; one thread locks the value
/// without changing it.
#[test]
fn a_value_is_not_changed_while_it_is_read_without_its_lock() {
    try_fair_orders(|| {
        let pair = Arc::new(Pair {
            lock: Mutex::new(()),
            reads: ReadCount::new(),
            words: [const { AtomicU64::new(0) }; 2],
        });
        let readers = [0, 1].map(|cpu| {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                percpu::override_current(Some(cpu));
                (0..4).filter(|_| pair.peek()).count()
            })
        });
        let holder = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.lock(false))
        };
        pair.lock(true);
        pair.lock(true);
        holder.join().unwrap();
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() <= 4));
        // Readers in turns come to read without the lock again: nothing else stands in their way.
        percpu::override_current(Some(0));
        let alone = (0..5).filter(|_| pair.peek()).count();
        assert!(alone >= 1, "reads that nobody disturbs need the lock");
        pair.expect_equal();
    });
}
