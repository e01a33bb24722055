//! Counters of an extraction, shared by its threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::ExtractReport;
use crate::progress::{Counts, Notice, NoticeKind};

/// See the module.
#[derive(Default)]
pub struct Counters {
    files: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    unreadable: AtomicU64,
    not_preserved: Mutex<BTreeMap<String, u64>>,
}

impl Counters {
    /// Counts a file, with some bytes of data.
    pub fn add_file(&self, bytes: u64) {
        self.files.fetch_add(1, Relaxed);
        self.add_bytes(bytes);
    }

    /// Counts data of a file that was counted before.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts metadata that was not preserved: a plural such as `owners`, with the reason.
    pub fn lose(&self, what: &str) {
        let mut losses = self.not_preserved.lock().unwrap_or_else(PoisonError::into_inner);
        match losses.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(losses.insert(what.into(), 1)),
        }
    }

    /// Counts a message.
    pub fn count(&self, notice: &Notice) {
        match notice.kind {
            NoticeKind::Unreadable => drop(self.unreadable.fetch_add(1, Relaxed)),
            NoticeKind::Failed => drop(self.failed.fetch_add(1, Relaxed)),
            NoticeKind::Warning | NoticeKind::NotStored | NoticeKind::Waiting => {}
        }
    }

    /// Files and bytes so far.
    pub fn counts(&self) -> Counts {
        Counts { files: self.files.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    /// The totals.
    pub fn into_report(self) -> ExtractReport {
        ExtractReport {
            files: self.files.into_inner(),
            bytes: self.bytes.into_inner(),
            failed: self.failed.into_inner(),
            unreadable: self.unreadable.into_inner(),
            not_preserved: self.not_preserved.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
