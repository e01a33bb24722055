//! What one transaction commits: its items, visited where they lie, once.

use std::sync::Arc;

use super::edit::Edit;
use super::item::{Commit, Grown, LogItem, Moment};
use super::regions::Regions;
use super::target::BusyExtent;
use super::transaction::Loggable;

/// A lockless item that is logged once and has no home of its own.
#[derive(Debug)]
pub(super) struct Plain {
    pub item: Arc<dyn LogItem>,
    pub regions: Option<Regions>,
}

impl Commit for Plain {
    fn item(&self) -> Arc<dyn LogItem> {
        Arc::clone(&self.item)
    }

    fn log(&mut self, at: Moment) -> Grown {
        let regions = self.regions.take().unwrap_or_default();
        self.item.core().log_regions(at, |into| *into = regions)
    }
}

/// A [`Loggable`] as one of the items of a commit.
struct Locked<'a>(&'a mut dyn Loggable);

impl Commit for Locked<'_> {
    fn item(&self) -> Arc<dyn LogItem> {
        self.0.item()
    }

    fn log(&mut self, at: Moment) -> Grown {
        self.0.log(at)
    }
}

/// The items of a transaction, and what else goes with it.
pub struct Commits<'a, 'b> {
    pub(super) items: &'a mut [Plain],
    pub(super) buffers: &'a mut [Option<Edit>],
    pub(super) locked: &'a mut [&'b mut dyn Loggable],
    /// What stays locked goes along too, though it did not change, if the log still needs an older record of it.
    pub(super) again: bool,
    /// Blocks that it freed; taken out by the target.
    pub busy: &'a mut Vec<BusyExtent>,
}

impl Commits<'_, '_> {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        let again = self.again;
        self.items.is_empty()
            && self.busy.is_empty()
            && !self.buffers.iter().flatten().any(|edit| is_part(edit, again))
            && !self.locked.iter().any(|locked| is_locked_part(&**locked, again))
    }

    /// Visits the items in the order in which the log should hold them.
    #[inline]
    pub fn for_each(&mut self, mut visit: impl FnMut(&mut dyn Commit)) {
        let again = self.again;
        for item in self.items.iter_mut() {
            visit(item);
        }
        for edit in self.buffers.iter_mut().flatten() {
            if is_part(edit, again) {
                visit(edit);
            }
        }
        for locked in self.locked.iter_mut() {
            if is_locked_part(&**locked, again) {
                visit(&mut Locked(&mut **locked));
            }
        }
    }
}

#[inline]
fn is_part(edit: &Edit, again: bool) -> bool {
    edit.is_dirty() || (again && edit.held && edit.buffer().core().lsn().is_some())
}

#[inline]
fn is_locked_part(locked: &dyn Loggable, again: bool) -> bool {
    locked.is_dirty() || (again && locked.item().core().lsn().is_some())
}
