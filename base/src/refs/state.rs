//! The reference count and the state of an object in one word, and the attached object.

use std::fmt;

use super::counters;
use super::slots::SLOTS_LOG;
use crate::percpu;
use crate::rcu::{self, Removed, Section, Slot};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The object is freed when its last reference is dropped.
const UNLINKED: u64 = 1 << 63;
/// The last reference was dropped: the object is being freed.
const QUEUED: u64 = 1 << 62;
/// The object is free.
const FREE: u64 = 1 << 61;
/// Per-CPU mode: references are counted by the counters of a slot.
const PER_CPU: u64 = 1 << 60;
/// The count has left per-CPU mode, and the slot's counters are still to be added.
const COLLECTING: u64 = 1 << 59;
/// The slot, in per-CPU mode and while the count is collected.
const SLOT_SHIFT: u32 = 59 - SLOTS_LOG;
const SLOT_MASK: u64 = (1 << SLOTS_LOG) - 1;
/// The count. With a slot, [`BIAS`] is added to it, so that the word is not zero although the references are counted
/// elsewhere.
const COUNT: u64 = (1 << SLOT_SHIFT) - 1;
const BIAS: u64 = 1 << (SLOT_SHIFT - 1);

/// Points for each reference that another CPU takes than the one before. A reference taken by the same CPU costs one.
const OTHER_CPU_POINTS: u32 = 2;
/// Points at which a count changes to per-CPU mode.
const CONTENDED: u32 = 12;
/// In [`RefCount::recent`]: the points; above them the CPU.
const POINTS: u32 = 0xff;

/// The number of references to an object, the object's state, and the object that is attached to it.
pub struct RefCount<A> {
    word: AtomicU64,
    /// The CPU that took a reference last, and points for contention. A hint, written beside the word.
    recent: AtomicU32,
    attached: Slot<A>,
}

/// The result of taking a reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// There was no other reference.
    pub is_first: bool,
    /// The object is neither queued nor free.
    pub is_valid: bool,
}

/// The result of dropping a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// There may be other references.
    Other,
    /// It was the last one.
    Last,
    /// It was the last one, and the object is now queued.
    LastOfUnlinked,
}

fn slot(word: u64) -> u16 {
    (word >> SLOT_SHIFT & SLOT_MASK) as u16
}

impl<A: Send + Sync> RefCount<A> {
    /// The count of an object without references.
    pub fn new(is_free: bool) -> Self {
        Self {
            word: AtomicU64::new(if is_free { FREE } else { 0 }),
            recent: AtomicU32::new(0),
            attached: Slot::default(),
        }
    }

    /// Adds a reference.
    #[inline]
    pub(super) fn take(&self) -> Taken {
        if self.word.load(Ordering::Relaxed) & PER_CPU != 0 && self.add_per_cpu(1) {
            return Taken { is_first: false, is_valid: true };
        }
        let before = self.word.fetch_add(1, Ordering::AcqRel);
        Taken { is_first: before & COUNT == 0, is_valid: before & (QUEUED | FREE) == 0 }
    }

    /// Removes a reference.
    #[inline]
    pub(super) fn put(&self) -> Dropped {
        if self.word.load(Ordering::Relaxed) & PER_CPU != 0 && self.add_per_cpu(1_u64.wrapping_neg()) {
            return Dropped::Other;
        }
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        if before & COUNT == 1 { self.dropped_last(before) } else { Dropped::Other }
    }

    /// The count has become zero. If another reference was taken meanwhile, its drop comes here again.
    fn dropped_last(&self, before: u64) -> Dropped {
        let queue =
            || self.word.compare_exchange(UNLINKED, UNLINKED | QUEUED, Ordering::AcqRel, Ordering::Acquire);
        match before & (UNLINKED | QUEUED) == UNLINKED && queue().is_ok() {
            true => Dropped::LastOfUnlinked,
            false => Dropped::Last,
        }
    }

    /// Adds to the counter of this CPU, in a section that a [collection](Self::collect) waits for. Returns `false` if
    /// the count is not in per-CPU mode any more.
    #[inline]
    fn add_per_cpu(&self, amount: u64) -> bool {
        rcu::read(|_| {
            let word = self.word.load(Ordering::Acquire);
            let is_per_cpu = word & PER_CPU != 0;
            if is_per_cpu {
                counters().add(slot(word), amount);
            }
            is_per_cpu
        })
    }

    /// Notes which CPU has just taken a reference: if CPUs take turns, the count changes to per-CPU mode.
    #[inline]
    pub(super) fn note_cpu(&self) {
        let recent = self.recent.load(Ordering::Relaxed);
        let (last, points) = (recent >> POINTS.count_ones(), recent & POINTS);
        let cpu = percpu::current() as u32 & (u32::MAX >> POINTS.count_ones());
        if last == cpu {
            if points > 0 && points < CONTENDED {
                self.recent.store(recent - 1, Ordering::Relaxed);
            }
        } else if points < CONTENDED {
            let points = points + OTHER_CPU_POINTS;
            self.recent.store(cpu << POINTS.count_ones() | points, Ordering::Relaxed);
            if points >= CONTENDED {
                self.begin_per_cpu();
            }
        }
    }

    /// Changes to per-CPU mode. The caller has a reference.
    #[cold]
    fn begin_per_cpu(&self) {
        let Some(slot) = counters().allocate() else {
            self.recent.store(0, Ordering::Relaxed);
            return;
        };
        let begin = |word| {
            let is_plain = word & !COUNT == 0;
            is_plain.then_some((word + BIAS) | PER_CPU | u64::from(slot) << SLOT_SHIFT)
        };
        if self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, begin).is_err() {
            counters().release(slot);
            // An unlinked object may get a name later; then its count may change its mode.
            self.recent.store(0, Ordering::Relaxed);
        }
    }

    /// Ends per-CPU mode. Returns whether the count was in it: then the object must be given to
    /// [`collect`](super::collect()).
    #[must_use]
    pub fn begin_collecting(&self) -> bool {
        self.leave_per_cpu(0)
    }

    /// Sets `state`, and ends per-CPU mode. Returns whether the count was in it.
    fn leave_per_cpu(&self, state: u64) -> bool {
        let leave = |word| {
            let is_per_cpu = word & PER_CPU != 0;
            Some(if is_per_cpu { word & !PER_CPU | COLLECTING | state } else { word | state })
        };
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
        let was_per_cpu = before.is_ok_and(|before| before & PER_CPU != 0);
        if was_per_cpu {
            self.recent.store(0, Ordering::Relaxed);
        }
        was_per_cpu
    }

    /// Whether the object is neither queued nor free.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.word.load(Ordering::Acquire) & (QUEUED | FREE) == 0
    }

    /// Whether references are counted on each CPU.
    pub fn is_per_cpu(&self) -> bool {
        self.word.load(Ordering::Acquire) & PER_CPU != 0
    }

    /// Whether the count has left per-CPU mode, and is still to be collected.
    pub fn is_collecting(&self) -> bool {
        self.word.load(Ordering::Acquire) & COLLECTING != 0
    }

    /// Adds the counters of all CPUs to the count. A grace period has ended since the count left per-CPU mode, so that
    /// no thread uses its slot.
    pub(super) fn collect(&self) -> Dropped {
        let word = self.word.load(Ordering::Acquire);
        assert!(word & COLLECTING != 0, "a count was collected twice");
        let slot = slot(word);
        let removed = BIAS + COLLECTING + (u64::from(slot) << SLOT_SHIFT);
        // The count with the bias is larger than any sum, so that nothing is borrowed from the state.
        let change = counters().release(slot).wrapping_sub(removed);
        let now = self.word.fetch_add(change, Ordering::AcqRel).wrapping_add(change);
        if now & COUNT == 0 { self.dropped_last(now) } else { Dropped::Other }
    }

    /// Whether the object is free. The caller makes sure that this does not change.
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) & FREE != 0
    }

    /// The free object was allocated.
    pub fn set_allocated(&self) {
        let allocate = |word| (word & (FREE | QUEUED) == FREE).then_some(word & !(FREE | UNLINKED));
        let allocated = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, allocate);
        // It remains free, and there are no references to it.
        debug_assert!(allocated.is_ok(), "an object in use was allocated");
    }

    /// The object is freed when its last reference is dropped. Returns whether it must be given to
    /// [`collect`](super::collect()) for that. The caller has a reference.
    #[must_use]
    pub fn set_unlinked(&self) -> bool {
        self.leave_per_cpu(UNLINKED)
    }

    /// The object is not freed when its last reference is dropped.
    pub fn clear_unlinked(&self) {
        self.word.fetch_and(!UNLINKED, Ordering::AcqRel);
    }

    /// The object, which was queued, is free. Returns the attached object: a thread that found the object before may
    /// still read it.
    pub fn set_free(&self) -> Option<Removed<A>> {
        let attached = self.detach()?;
        self.word.fetch_and(!(UNLINKED | QUEUED), Ordering::AcqRel);
        attached
    }

    /// The object, which was queued, is another one now, which is unlinked, too. Stale references become valid ones.
    /// Returns the attached object.
    pub(super) fn set_reused(&self) -> Option<Option<Removed<A>>> {
        let attached = self.detach()?;
        self.word.fetch_and(!(FREE | QUEUED), Ordering::AcqRel);
        Some(attached)
    }

    /// Removes the attached object of a queued object, by the only thread that does. Then the object is free, but
    /// queued still.
    fn detach(&self) -> Option<Option<Removed<A>>> {
        let begin = |word| (word & (FREE | QUEUED) == QUEUED).then_some(word | FREE);
        let begun = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, begin);
        // Otherwise there may be references, also to the attached object.
        debug_assert!(begun.is_ok(), "an object was freed that may have references");
        begun.is_ok().then(|| self.attached.take())
    }

    /// Attaches an object, unless there is one. The caller has a reference.
    pub fn attach(&self, new: A) {
        self.attached.set(new);
    }

    /// The attached object, if there is one.
    #[inline]
    pub fn attached<'s>(&'s self, section: &'s Section) -> Option<&'s A> {
        self.attached.get(section)
    }

    /// The attached object, if there is one, read outside of a read section.
    ///
    /// # Safety
    /// The caller has a valid reference to the object for as long as the result is used.
    #[inline]
    #[allow(unsafe_code, reason = "passed on to the caller")]
    pub(super) unsafe fn attached_while_referenced(&self) -> Option<&A> {
        // SAFETY: it is taken from the slot only if the object is queued.
        unsafe { self.attached.get_unguarded() }
    }
}

impl<A> fmt::Debug for RefCount<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefCount({:#x})", self.word.load(Ordering::Relaxed))
    }
}
