//! Write errors of writeback, reported once to each open file (like the kernel's `errseq_t`).
//!
//! The next `fsync` of each file that was open when a write failed returns the error. The contents count errors; an
//! open file remembers the count that it has reported.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::lock::{Mutex, Rank};
use error::Error;

/// The write errors of one file.
#[derive(Debug)]
pub(crate) struct WriteErrors {
    count: AtomicU64,
    last: Mutex<Option<Error>>,
}

impl Default for WriteErrors {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), last: Mutex::new(Rank::Leaf, None) }
    }
}

/// The position of an open file in the sequence of write errors, sampled when it is opened.
#[derive(Debug)]
pub struct ErrorSeq(AtomicU64);

impl WriteErrors {
    /// Records an error.
    pub fn note(&self, error: &Error) {
        let mut last = self.last.lock();
        *last = Some(error.clone());
        self.count.fetch_add(1, SeqCst);
    }

    /// Returns the position after all errors so far.
    pub fn sample(&self) -> ErrorSeq {
        ErrorSeq(AtomicU64::new(self.count.load(SeqCst)))
    }

    /// Returns the last error, unless the open file has reported it.
    pub fn report(&self, seen: &ErrorSeq) -> Result<(), Error> {
        if !seen.advance(self.count.load(SeqCst)) {
            return Ok(());
        }
        self.last.lock().clone().map_or(Ok(()), Err)
    }
}

impl ErrorSeq {
    /// Advances to `now`. Returns `false` if it was reported before. Another `fsync` of the same open file may have
    /// reported a later error meanwhile: the position never goes back.
    fn advance(&self, now: u64) -> bool {
        self.0.fetch_max(now, SeqCst) < now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_reports_an_error_once() {
        let errors = WriteErrors::default();
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

    /// Two threads called `fsync` on one open file. The first read the count of failures and was preempted; another
    /// write failed, and the second thread reported it. The first then set the sequence back, so that it reported the
    /// same failure again, and so did the next `fsync`.
    #[test]
    fn a_late_fsync_does_not_report_what_another_has_reported() {
        let errors = WriteErrors::default();
        let seen = errors.sample();
        errors.note(&Error::NoSpace { what: "a test" });
        let early = errors.count.load(SeqCst);
        errors.note(&Error::NoSpace { what: "a test" });
        assert!(errors.report(&seen).is_err());
        assert!(!seen.advance(early));
        assert!(errors.report(&seen).is_ok());
    }
}
