//! Reclaim: dropping folios when memory is short.
//!
//! | part | subject |
//! |---|---|
//! | [`Generations`] | the folios of a CPU, in the order in which reclaim examines them |
//! | [`ReclaimPolicy`] | what reclaim does with a dirty folio |
//! | `drop_unused` | one round of reclaim |
//!
//! Folios have two generations. A new folio is young. If it is used again some time later, it becomes old; the uses
//! right after the first one, such as reads of its other pages, do not count. Reclaim drops young folios, so that a
//! stream of data that is used once evicts only itself. An old folio that was not used while twice the cache's memory
//! was inserted becomes young again, and so do the oldest ones if most are old.
//!
//! By default reclaim never writes (Gorman, "Reduce filesystem writeback from page reclaim", 2011). A dirty folio at
//! the end of the young generation is marked; when its writeback ends, it is dropped, unless it was used meanwhile or
//! there is room by then.
//!
//! # Invariants
//! - With [`ReclaimPolicy::Never`], no thread writes contents while it reclaims. Debug builds assert it.
//! - A round examines a limited number of folios, and a lower number of dirty ones of each list. So the call that needs
//!   memory is not delayed by more than that, and dirty folios of one list do not hide clean ones of another.
//!
//! # Locking
//! The generations of a CPU are under one lock of rank `Cache`, which is held for one push or pop. Only the lock of the
//! folio that is examined is tried. The caller holds no folio, and at most `io` of one file.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use base::WeakQueue;

use crate::cache::Cache;
use crate::contents::Contents;
use crate::folio::{FOLIO_BYTES, Folio};
use crate::tuning::{OLD_PERIODS, RECLAIM_DIRTY_MAX, RECLAIM_FOLIOS_MAX, REUSE_FRACTION};
use backing::Backing;

/// What reclaim does with a dirty folio at the end of the young generation. All but the default are for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// The thread that needs memory writes the folio back.
    WriteFromDirect,
    /// Only if a whole round found too few clean folios.
    OnlyInTrouble,
    /// The flusher writes it back, as everything else.
    #[default]
    Never,
}

impl ReclaimPolicy {
    /// All policies, with their names in options.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("write-from-direct", Self::WriteFromDirect),
        ("only-in-trouble", Self::OnlyInTrouble),
        ("never", Self::Never),
    ];
}

/// The folios that one CPU made, each in one of two lists, oldest first, with the time when it was added.
#[derive(Debug)]
pub(crate) struct Generations<B: Backing> {
    /// Not used again since they became young.
    young: WeakQueue<Folio<B>, u64>,
    /// Used again.
    old: WeakQueue<Folio<B>, u64>,
}

impl<B: Backing> Default for Generations<B> {
    fn default() -> Self {
        Self { young: WeakQueue::default(), old: WeakQueue::default() }
    }
}

impl<B: Backing> Generations<B> {
    /// Adds a new folio. Removes a few that were dropped.
    fn add(&mut self, folio: Weak<Folio<B>>, now: u64) {
        self.put(folio, now, false);
        // Without reclaim, none is added there.
        self.old.sweep();
    }

    /// Takes the folio to examine next, and whether it is old: the oldest one if most are old, or if it is old since
    /// before `old_before`.
    pub(crate) fn next(&mut self, old_before: u64) -> Option<(Weak<Folio<B>>, bool)> {
        let mostly_old = self.old.len() > self.young.len();
        let is_old = self.old.first().is_some_and(|since| mostly_old || *since < old_before);
        let queue = if is_old { &mut self.old } else { &mut self.young };
        queue.pop().map(|(folio, _)| (folio, is_old))
    }

    fn put(&mut self, folio: Weak<Folio<B>>, now: u64, is_old: bool) {
        let queue = if is_old { &mut self.old } else { &mut self.young };
        queue.push(folio, now);
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// Result of examining a folio.
enum Examined<B: Backing> {
    /// The folio is no longer in memory.
    Gone,
    /// The folio stays in memory, as an old one or a young one.
    Stays { is_old: bool },
    /// The folio is young, was not used again, and is dirty. The contents that it belongs to.
    Dirty(Arc<Contents<B>>),
}

impl<B: Backing> Cache<B> {
    /// Adds a new folio to the list for reclaim.
    pub(crate) fn remember(&self, folio: &Arc<Folio<B>>) {
        self.inserted.add(FOLIO_BYTES as u64);
        let now = self.inserted.get();
        folio.set_examined(now);
        self.folios.local().1.lock().add(Arc::downgrade(folio), now);
    }

    /// Notes a use of a folio.
    #[inline]
    pub(crate) fn used(&self, folio: &Folio<B>) {
        folio.touch(self.inserted.get(), self.reuse_bytes.load(Relaxed));
    }

    /// Called before memory is allocated. The caller holds no folio.
    #[inline]
    pub(crate) fn reclaim_if_needed(&self) {
        if self.memory.budget().is_exceeded() {
            self.make_room();
        }
    }

    #[cold]
    fn make_room(&self) {
        if !self.memory.is_exceeded() {
            self.memory.budget().make_room();
        } else if !self.reclaim(self.memory.limit()) {
            self.pace.note_short();
            self.wake_flushers();
        }
    }

    /// Drops clean folios until there are at most `bytes` bytes. Returns whether there are.
    #[cold]
    pub(crate) fn reclaim(&self, bytes: u64) -> bool {
        self.drop_unused(bytes);
        self.memory.used() <= bytes
    }

    /// Drops clean folios until there are at most `bytes` bytes, all were examined twice, or many were. Returns how
    /// many more it could have examined: 0 if it stopped early.
    pub(crate) fn drop_unused(&self, bytes: u64) -> usize {
        let _reclaiming = Reclaiming::begin(self.options.reclaim);
        let left = self.reclaim_round(bytes, self.options.reclaim == ReclaimPolicy::WriteFromDirect);
        if self.options.reclaim == ReclaimPolicy::OnlyInTrouble && self.memory.used() > bytes {
            return self.reclaim_round(bytes, true);
        }
        left
    }

    fn reclaim_round(&self, bytes: u64, writes: bool) -> usize {
        let (_, local) = self.folios.local();
        let mut examined_left = RECLAIM_FOLIOS_MAX;
        let now = self.inserted.get();
        // The part of the cache may have changed.
        let reuse_bytes = self.memory.part() / REUSE_FRACTION;
        self.reuse_bytes.store(reuse_bytes, Relaxed);
        let old_before = now.saturating_sub(OLD_PERIODS * reuse_bytes);
        for queue in std::iter::once(local).chain(self.folios.iter()) {
            // Each folio twice: the first time an old one becomes young.
            let mut rounds = queue.lock().len() * 2;
            let mut dirty_left = RECLAIM_DIRTY_MAX;
            while rounds > 0 && examined_left > 0 && dirty_left > 0 {
                if self.memory.used() <= bytes {
                    return examined_left;
                }
                let Some((weak, is_old)) = queue.lock().next(old_before) else { break };
                (rounds, examined_left) = (rounds - 1, examined_left - 1);
                self.counters.looked.add();
                let Some(folio) = weak.upgrade() else { continue };
                match self.examine(&folio, is_old, now) {
                    Examined::Gone => {}
                    Examined::Stays { is_old } => queue.lock().put(weak, now, is_old),
                    Examined::Dirty(contents) => {
                        dirty_left -= 1;
                        queue.lock().put(weak, now, false);
                        if writes {
                            self.write_from_reclaim(&contents, &folio);
                        }
                    }
                }
            }
        }
        examined_left
    }

    /// Drops a folio that is young, clean and was not used recently.
    fn examine(&self, folio: &Arc<Folio<B>>, is_old: bool, now: u64) -> Examined<B> {
        let used = folio.forget_use();
        if used || is_old {
            folio.set_examined(now);
            return Examined::Stays { is_old: used };
        }
        // If the contents are being dropped, they drop their folios. This may become the last reference to them: it is
        // dropped after the lock.
        let Some(contents) = folio.owner.upgrade() else { return Examined::Gone };
        let Some(mut state) = folio.state.try_write() else { return Examined::Stays { is_old: false } };
        if state.gone {
            return Examined::Gone;
        }
        if !state.is_clean() {
            self.counters.dirty_met.add();
            state.drop_when_clean = true;
            drop(state);
            return Examined::Dirty(contents);
        }
        contents.drop_folio(folio, &mut state);
        self.counters.dropped.add();
        Examined::Gone
    }

    /// Writes back one folio, for comparison.
    fn write_from_reclaim(&self, contents: &Arc<Contents<B>>, folio: &Folio<B>) {
        let (bytes, _) = self.write_file(contents, folio.offset(), folio.offset() + FOLIO_BYTES as u64);
        self.counters.written_by_reclaim.add_many(bytes);
    }
}

/// While it exists, the thread reclaims.
struct Reclaiming;

#[cfg(debug_assertions)]
thread_local! {
    /// The thread reclaims, and must not write contents.
    static MUST_NOT_WRITE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Reclaiming {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only debug builds check"))]
    fn begin(policy: ReclaimPolicy) -> Self {
        #[cfg(debug_assertions)]
        MUST_NOT_WRITE.set(policy == ReclaimPolicy::Never);
        Self
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        MUST_NOT_WRITE.set(false);
    }
}

/// Asserts that a write of contents was not entered from reclaim, unless the policy allows it.
#[inline]
pub(crate) fn assert_may_write() {
    #[cfg(debug_assertions)]
    assert!(!MUST_NOT_WRITE.get(), "reclaim writes contents, and its policy is never to write");
}
