//! Readers of a locked value that do without the lock, and a writer.

use std::sync::{Arc, PoisonError};

use races::lock::ReadCount;
use races::try_fair_orders;
use shuttle::sync::RwLock;
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

/// Two words that are equal, except while the writer changes them.
struct Pair {
    lock: RwLock<()>,
    reads: ReadCount<2>,
    words: [AtomicU64; 2],
}

impl Pair {
    fn expect_equal(&self) {
        let first = self.words[0].load(SeqCst);
        assert_eq!(self.words[1].load(SeqCst), first, "read while it is written");
    }

    fn read(&self) {
        if self.reads.read_without_lock(|| self.expect_equal()).is_err() {
            let _locked = self.lock.read().unwrap_or_else(PoisonError::into_inner);
            self.reads.add();
            self.expect_equal();
        }
    }

    fn write(&self) {
        let _locked = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.reads.end_sections();
        for word in &self.words {
            word.fetch_add(1, SeqCst);
        }
    }
}

/// A reader counted its read by a store: it took the count back below the limit at which others already read without
/// the lock, so that the writer did not wait for them.
#[test]
fn a_value_is_not_written_while_it_is_read_without_its_lock() {
    try_fair_orders(|| {
        let pair = Arc::new(Pair {
            lock: RwLock::new(()),
            reads: ReadCount::new(),
            words: [const { AtomicU64::new(0) }; 2],
        });
        let readers = [1, 4].map(|reads| {
            let pair = Arc::clone(&pair);
            thread::spawn(move || (0..reads).for_each(|_| pair.read()))
        });
        pair.write();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
