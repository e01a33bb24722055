//! Failed writes, told once to each open file.
//!
//! A write that fails is told at the next `fsync` of each open file that was open when it failed. The contents count
//! failures; an open file remembers the count that it has told of.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::lock::{Mutex, Rank};
use log::engine::Error;

/// The failures of one file.
#[derive(Debug)]
pub(crate) struct Errors {
    count: AtomicU64,
    last: Mutex<Option<Error>>,
}

impl Default for Errors {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), last: Mutex::new(Rank::Leaf, None) }
    }
}

/// Up to which failure an open file has told its user: sampled when it is opened.
#[derive(Debug)]
pub struct ErrorSeq(AtomicU64);

impl Errors {
    /// Notes a failure.
    pub fn note(&self, error: &Error) {
        let mut last = self.last.lock();
        *last = Some(error.clone());
        self.count.fetch_add(1, SeqCst);
    }

    /// What a file that is opened now has nothing to do with.
    pub fn sample(&self) -> ErrorSeq {
        ErrorSeq(AtomicU64::new(self.count.load(SeqCst)))
    }

    /// The last failure, if an open file has not told of it yet. From now on it has.
    pub fn report(&self, seen: &ErrorSeq) -> Result<(), Error> {
        let now = self.count.load(SeqCst);
        if seen.0.swap(now, SeqCst) == now {
            return Ok(());
        }
        self.last.lock().clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_hears_of_a_failure_once() {
        let errors = Errors::default();
        let (first, second) = (errors.sample(), errors.sample());
        assert!(errors.report(&first).is_ok());
        errors.note(&Error::NoSpace { what: "a test" });
        let later = errors.sample();
        assert!(errors.report(&first).is_err());
        assert!(errors.report(&first).is_ok());
        assert!(errors.report(&later).is_ok());
        assert!(errors.report(&second).is_err());
        assert!(errors.report(&second).is_ok());
    }
}
