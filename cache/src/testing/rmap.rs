//! The [`ReservedRmap`] of the test volume: reservations for writes that split mapped extents.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::Shared;
use backing::ReservedRmap;

/// Reserved changes. A transaction that makes more panics.
#[derive(Debug, Default)]
pub struct TestRmap {
    shared: Option<Arc<Shared>>,
    changes: u64,
}

impl TestRmap {
    pub(super) fn new(shared: &Arc<Shared>, changes: u64) -> Self {
        shared.rmap.fetch_add(changes, SeqCst);
        Self { shared: Some(Arc::clone(shared)), changes }
    }

    pub(super) fn spend(&mut self, changes: u64) {
        assert!(changes <= self.changes, "{changes} mapped blocks change, and {} may", self.changes);
        self.limit(self.changes - changes);
    }
}

impl ReservedRmap for TestRmap {
    fn join(&mut self, mut others: Self) {
        self.changes += std::mem::take(&mut others.changes);
        self.shared = self.shared.take().or(others.shared.take());
    }

    fn limit(&mut self, blocks: u64) {
        let over = self.changes.saturating_sub(blocks);
        if let Some(shared) = &self.shared {
            shared.rmap.fetch_sub(over, SeqCst);
        }
        self.changes -= over;
    }
}

impl Drop for TestRmap {
    fn drop(&mut self) {
        self.limit(0);
    }
}
