//! The active item list (AIL): items that are in the stable log and not written back, by LSN.
//!
//! Items of one checkpoint share its LSN and so a *bucket*. An item that is logged again moves to a newer bucket. Its
//! entry in the old one stays behind uncounted, and is dropped when a scan meets it, or with others. So the items of a
//! checkpoint, however many, are inserted under one short lock.
//!
//! # Invariants
//! - An item's own LSN names the bucket in which it is counted. It only grows, and changes only under the lock.
//! - No bucket without a counted item is kept. The LSN of the first one is the tail.
//! - At most half of the items of a bucket are not counted, and 64.
//! - An item that is not completely logged ([`keep_position`](super::item::ItemCore)) keeps its LSN when it is logged
//!   again, and moves to the newer one after writeback: otherwise the tail could pass what recovery needs.
//! - While the list is empty, the tail is the last commit record.
//!
//! # Locking
//! One mutex of rank `Ail`. It is not held while items are pushed or their writes complete.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::Lsn;
use base::lock::{Condvar, Mutex, Rank};

use super::item::{LogItem, prefetch_next};

/// An item taken from the AIL, with its LSN at that time. If the LSN has changed since, the item was logged again.
#[derive(Clone, Debug)]
pub struct AilEntry {
    pub item: Arc<dyn LogItem>,
    pub lsn: Lsn,
}

/// The active item list.
#[derive(Debug)]
pub struct Ail {
    state: Mutex<State>,
    /// The first bucket was removed; notified if a thread waits for that.
    moved: Condvar,
}

/// Items that have left a bucket and stay in it at most, beside as many as are in it.
const LEFT_MAX: usize = 64;

struct State {
    buckets: BTreeMap<Lsn, AilBucket>,
    /// Items counted in all buckets.
    live: usize,
    /// The last stable commit record.
    last_commit: Lsn,
    /// Threads that wait for the tail to move.
    waiting: usize,
    /// The volume is shut down.
    closed: bool,
}

#[derive(Default)]
struct AilBucket {
    /// In the order of the checkpoint; some have left.
    items: VecDeque<Arc<dyn LogItem>>,
    live: usize,
}

impl State {
    fn tail(&self) -> Lsn {
        self.buckets.first_key_value().map_or(self.last_commit, |(lsn, _)| *lsn)
    }

    fn drop_items<'a>(&mut self, items: impl Iterator<Item = (&'a Arc<dyn LogItem>, Lsn)>) {
        for (item, lsn) in items {
            if item.core().lsn() != Some(lsn) {
                continue;
            }
            let later = item.core().leave();
            item.core().set_lsn(later);
            self.leave(lsn);
            if let Some(later) = later {
                let bucket = self.buckets.entry(later).or_default();
                bucket.items.push_back(Arc::clone(item));
                bucket.live += 1;
                self.live += 1;
            }
        }
    }

    /// Stops counting an item in its bucket.
    fn leave(&mut self, lsn: Lsn) {
        self.live -= 1;
        if let Some(bucket) = self.buckets.get_mut(&lsn) {
            bucket.live -= 1;
            if bucket.live == 0 {
                self.buckets.remove(&lsn);
            } else {
                bucket.drop_uncounted(lsn);
            }
        }
    }
}

impl AilBucket {
    /// Drops the items that have left, if most have: nothing may scan this bucket for a long time. A file of millions
    /// of extents leaves so many intents, each of which is done when the next checkpoint is stable.
    fn drop_uncounted(&mut self, lsn: Lsn) {
        if self.items.len() > 2 * self.live + LEFT_MAX {
            self.items.retain(|item| item.core().lsn() == Some(lsn));
            self.items.shrink_to(2 * self.items.len());
        }
    }
}

impl Ail {
    /// The empty list of a log whose next record gets LSN `head`.
    pub fn new(head: Lsn) -> Self {
        let state = State { buckets: BTreeMap::new(), live: 0, last_commit: head, waiting: 0, closed: false };
        Self { state: Mutex::new(Rank::Ail, state), moved: Condvar::new() }
    }

    /// Inserts an intent that recovery found in the log.
    pub fn add_recovered_intent(&self, item: Arc<dyn LogItem>, lsn: Lsn) {
        let mut state = self.state.lock();
        item.core().set_lsn(Some(lsn));
        let bucket = state.buckets.entry(lsn).or_default();
        bucket.items.push_back(item);
        bucket.live += 1;
        state.live += 1;
    }

    /// Drops all items. Nothing is written back after this.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.live = 0;
        let buckets = std::mem::take(&mut state.buckets);
        drop(state);
        // Dropping the last reference to an item may take locks.
        drop(buckets);
    }

    /// A checkpoint became stable: inserts its items at its start, and removes those that it made unneeded. Returns the
    /// tail.
    ///
    /// Insertion comes first: an intent may be finished by the same checkpoint.
    pub fn complete(
        &self,
        start: Lsn,
        commit: Lsn,
        items: &[Arc<dyn LogItem>],
        unneeded: &[Arc<dyn LogItem>],
    ) -> Lsn {
        let mut state = self.state.lock();
        let mut bucket = state.buckets.remove(&start).unwrap_or_default();
        bucket.items.reserve(items.len());
        let mut rest = items.iter();
        while let Some(item) = rest.next() {
            prefetch_next(rest.as_slice());
            let core = item.core();
            if let Some(old) = core.lsn() {
                // Without a journal, all checkpoints have the same LSN.
                if old == start {
                    core.relogged_at(start);
                    continue;
                }
                if core.keeps_position_at(start) {
                    continue;
                }
                state.leave(old);
            }
            core.set_lsn(Some(start));
            bucket.items.push_back(Arc::clone(item));
            bucket.live += 1;
            state.live += 1;
        }
        if bucket.live > 0 {
            state.buckets.insert(start, bucket);
        }
        state.last_commit = state.last_commit.max(commit);
        for item in unneeded {
            if let Some(lsn) = item.core().lsn() {
                item.core().leave();
                state.drop_items(std::iter::once((item, lsn)));
            }
        }
        self.notify_moved(&state)
    }

    /// Wakes threads that wait for the tail to move; returns the tail.
    fn notify_moved(&self, state: &State) -> Lsn {
        if state.waiting > 0 {
            self.moved.notify_all();
        }
        state.tail()
    }

    /// Waits until no item is left up to and including `lsn`, or the list is closed. The items that were there are
    /// written back, or were logged again and are in a later bucket.
    pub fn wait_past(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        state.waiting += 1;
        while !state.closed && state.buckets.first_key_value().is_some_and(|(first, _)| *first <= lsn) {
            self.moved.wait(&mut state);
        }
        state.waiting -= 1;
    }

    /// Waits until the list has at most so many items, or is closed.
    pub fn wait_below(&self, most: usize) {
        let mut state = self.state.lock();
        state.waiting += 1;
        while !state.closed && state.live > most {
            self.moved.wait(&mut state);
        }
        state.waiting -= 1;
    }

    /// Whether an item is in the list up to and including `lsn`.
    pub fn reaches(&self, lsn: Lsn) -> bool {
        self.state.lock().buckets.first_key_value().is_some_and(|(first, _)| *first <= lsn)
    }

    /// Wakes all waiting threads: nothing is written back any more.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.moved.notify_all();
    }

    /// Removes items, except those that were logged again since they were taken; returns the tail.
    pub fn remove<'a>(&self, items: impl Iterator<Item = (&'a Arc<dyn LogItem>, Lsn)>) -> Lsn {
        let mut state = self.state.lock();
        state.drop_items(items);
        self.notify_moved(&state)
    }

    /// Takes up to `most` items up to `target`, the oldest first. They stay counted: the caller must
    /// [`put_back`](Self::put_back) those that it does not [`remove`](Self::remove).
    pub fn take(&self, target: Lsn, most: usize) -> Vec<AilEntry> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        for (lsn, bucket) in state.buckets.range_mut(..=target) {
            while taken.len() < most
                && let Some(item) = bucket.items.pop_front()
            {
                if item.core().lsn() == Some(*lsn) {
                    taken.push(AilEntry { item, lsn: *lsn });
                }
            }
            if taken.len() >= most {
                break;
            }
        }
        taken
    }

    /// Puts back items that were not written.
    pub fn put_back(&self, items: impl Iterator<Item = AilEntry>) {
        let mut state = self.state.lock();
        for AilEntry { item, lsn } in items {
            if item.core().lsn() == Some(lsn)
                && let Some(bucket) = state.buckets.get_mut(&lsn)
            {
                bucket.items.push_back(item);
            }
        }
    }

    /// Puts back items, in order, so that they are the first to be taken again.
    pub fn put_first(&self, items: impl DoubleEndedIterator<Item = AilEntry>) {
        let mut state = self.state.lock();
        for AilEntry { item, lsn } in items.rev() {
            if item.core().lsn() == Some(lsn)
                && let Some(bucket) = state.buckets.get_mut(&lsn)
            {
                bucket.items.push_front(item);
            }
        }
    }

    /// The oldest record still needed.
    pub fn tail(&self) -> Lsn {
        self.state.lock().tail()
    }

    /// LSN of the newest item; `None` while the list is empty.
    pub fn newest(&self) -> Option<Lsn> {
        self.state.lock().buckets.last_key_value().map(|(lsn, _)| *lsn)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.state.lock().live
    }

    /// Whether everything in the log is written back.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("buckets", &self.buckets.len()).field("live", &self.live).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::item::ItemCore;
    use crate::engine::writeback::{DelwriQueue, PushResult};

    #[derive(Debug, Default)]
    struct Item(ItemCore);

    impl LogItem for Item {
        fn core(&self) -> &ItemCore {
            &self.0
        }

        fn push(self: Arc<Self>, _: &mut DelwriQueue<'_>) -> PushResult {
            PushResult::Clean
        }

        fn write_done(&self, _: bool) {}
    }

    /// A bucket kept the items that had left it until it was empty or written back. Each freed extent left an intent
    /// there beside one buffer that was not logged again: 160 bytes for each of millions of extents.
    #[test]
    fn items_that_have_left_do_not_stay_in_memory() {
        let ail = Ail::new(Lsn(1));
        let items: Vec<Arc<Item>> = (0..1000).map(|_| Arc::default()).collect();
        let as_items = |items: &[Arc<Item>]| -> Vec<Arc<dyn LogItem>> {
            items.iter().map(|item| Arc::clone(item) as Arc<dyn LogItem>).collect()
        };
        ail.complete(Lsn(2), Lsn(3), &as_items(&items), &[]);
        // The first one stays; the others are done.
        ail.complete(Lsn(4), Lsn(5), &[], &as_items(&items[1..]));
        assert_eq!((ail.len(), ail.tail()), (1, Lsn(2)));
        let left = items.iter().filter(|item| Arc::strong_count(item) > 1).count();
        assert!(left <= 3 + LEFT_MAX, "{left}");
        assert_eq!(Arc::strong_count(&items[0]), 2);
        let taken = ail.take(Lsn(2), 10);
        assert_eq!(taken.len(), 1);
    }
}
