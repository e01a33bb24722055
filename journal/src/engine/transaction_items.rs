//! The log items that one transaction commits.

use std::sync::Arc;

use super::commit_target::BusyExtent;
use super::item::{CommitItem, CommitPosition, LogItem, VectorGrowth};
use super::joined_buffer::JoinedBuffer;
use super::regions::LogRegions;
use super::transaction::Loggable;

/// An item without a lock that is logged once and not written back.
#[derive(Debug)]
pub(super) struct OneShotItem {
    pub item: Arc<dyn LogItem>,
    pub regions: Option<LogRegions>,
}

impl CommitItem for OneShotItem {
    fn item(&self) -> Arc<dyn LogItem> {
        Arc::clone(&self.item)
    }

    fn log(&mut self, at: CommitPosition) -> VectorGrowth {
        let regions = self.regions.take().unwrap_or_default();
        self.item.core().log_regions(at, |into| *into = regions)
    }
}

/// A [`Loggable`] as an item of a commit.
struct LoggableItem<'a>(&'a mut dyn Loggable);

impl CommitItem for LoggableItem<'_> {
    fn item(&self) -> Arc<dyn LogItem> {
        self.0.item()
    }

    fn log(&mut self, at: CommitPosition) -> VectorGrowth {
        self.0.log(at)
    }
}

/// The items of a transaction, and the blocks that it freed.
pub struct TransactionItems<'a, 'b> {
    pub(super) items: &'a mut [OneShotItem],
    pub(super) buffers: &'a mut [Option<JoinedBuffer>],
    pub(super) locked: &'a mut [&'b mut dyn Loggable],
    /// Unchanged items that stay locked are logged too if the log still needs an older record of them.
    pub(super) relog: bool,
    /// Blocks that it freed; taken by the target.
    pub busy: &'a mut Vec<BusyExtent>,
}

impl TransactionItems<'_, '_> {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        let relog = self.relog;
        self.items.is_empty()
            && self.busy.is_empty()
            && !self.buffers.iter().flatten().any(|edit| is_part(edit, relog))
            && !self.locked.iter().any(|locked| is_locked_part(&**locked, relog))
    }

    /// Visits the items in log order.
    #[inline]
    pub fn for_each(&mut self, mut visit: impl FnMut(&mut dyn CommitItem)) {
        let relog = self.relog;
        for item in self.items.iter_mut() {
            visit(item);
        }
        for edit in self.buffers.iter_mut().flatten() {
            if is_part(edit, relog) {
                visit(edit);
            }
        }
        for locked in self.locked.iter_mut() {
            if is_locked_part(&**locked, relog) {
                visit(&mut LoggableItem(&mut **locked));
            }
        }
    }
}

#[inline]
fn is_part(edit: &JoinedBuffer, relog: bool) -> bool {
    edit.is_dirty() || (relog && edit.held && edit.buffer().core().lsn().is_some())
}

#[inline]
fn is_locked_part(locked: &dyn Loggable, relog: bool) -> bool {
    locked.is_dirty() || (relog && locked.item().core().lsn().is_some())
}
