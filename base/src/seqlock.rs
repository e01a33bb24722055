//! A few words that are written under a lock and read without one, by readers that store nothing.
//!
//! # Invariants
//! A reader gets words that were published together, and that were valid at some moment of its call. What a writer
//! invalidated before another thread learnt of the change, that thread does not get.

use std::array;

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// In the version: the words are valid.
const VALID: u64 = 1;

/// `N` words that are read without a lock.
#[derive(Debug)]
pub struct SeqLock<const N: usize> {
    /// Changes with each publication.
    version: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for SeqLock<N> {
    /// Without valid words.
    fn default() -> Self {
        Self { version: AtomicU64::new(0), words: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> SeqLock<N> {
    /// The words; `None` if they are invalid, or changed during the call.
    #[inline]
    pub fn read(&self) -> Option<[u64; N]> {
        let version = self.version.load(Ordering::Acquire);
        if version & VALID == 0 {
            return None;
        }
        let mut words = [0; N];
        for (word, published) in words.iter_mut().zip(&self.words) {
            *word = published.load(Ordering::Relaxed);
        }
        // The words before the version.
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(words)
    }

    /// The words are about to change. The caller holds the lock of the writers.
    #[inline]
    pub fn invalidate(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version & !VALID, Ordering::Release);
    }

    /// Publishes new words. The caller holds the lock of the writers.
    pub fn publish(&self, words: [u64; N]) {
        let version = self.version.load(Ordering::Relaxed) & !VALID;
        self.version.store(version, Ordering::Relaxed);
        // A reader that sees one of the new words sees that the version changed.
        fence(Ordering::Release);
        for (slot, word) in self.words.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.version.store((version + 2) | VALID, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_published_last() {
        let lock = SeqLock::default();
        assert_eq!(lock.read(), None);
        lock.publish([1, 2]);
        assert_eq!(lock.read(), Some([1, 2]));
        lock.publish([3, 4]);
        assert_eq!(lock.read(), Some([3, 4]));
        lock.invalidate();
        assert_eq!(lock.read(), None);
    }

    #[test]
    fn readers_never_see_words_of_two_publications() {
        let lock = SeqLock::default();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut newest, mut reads) = (0, 0);
                while newest < 100_000 {
                    if let Some(words) = lock.read() {
                        assert!(words == [words[0]; 8] && words[0] >= newest, "{words:?}");
                        (newest, reads) = (words[0], reads + 1);
                    }
                }
                reads
            });
            for n in 1..=100_000 {
                lock.invalidate();
                lock.publish([n; 8]);
            }
            assert!(reader.join().unwrap() > 0);
        });
    }
}
