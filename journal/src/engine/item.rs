//! The part common to all log items, and their log vectors.
//!
//! # Invariants
//! - A commit never waits for a push to end. An item keeps up to two log vectors: that of the checkpoint being built,
//!   and that of the previous one if its push has not taken it yet. A third is never needed: a push takes all its
//!   vectors before the next checkpoint is closed.
//! - An item is pinned once for each checkpoint that contains it and is not stable.
//!
//! # Locking
//! The slots of [`ItemCore`] have rank `ItemSlot`. A commit holds them while it formats, a push while it takes a
//! vector: they meet at most once per checkpoint. The data that is formatted is protected by the item's own lock (a
//! buffer's, an inode's), which the committing transaction holds.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base::Lsn;
use base::lock::{Rank, SpinLock};
use base::prefetch::prefetch;

use super::buffer_vector::BufferVector;
use super::regions::LogRegions;
use super::sizes::logged;
use super::tuning::PREFETCH_ITEMS;
use super::writeback::{DelwriQueue, PushResult};
use error::Error;

/// A log item, which is logged and later written back: a buffer, an inode, an intent.
pub trait LogItem: Send + Sync + Debug {
    /// The common part.
    fn core(&self) -> &ItemCore;

    /// The checkpoint at `lsn` that contains this item is stable. Called after unpinning.
    fn committed(&self, lsn: Lsn) -> AfterCommit {
        let _ = lsn;
        AfterCommit::Insert
    }

    /// Copies the item's changes into its buffer and queues the buffer for writeback. Never waits for a lock.
    fn push(self: Arc<Self>, batch: &mut DelwriQueue<'_>) -> PushResult;

    /// Reads the buffer that the item is written back to, after [`PushResult::NotRead`]. Returns `false` if another
    /// thread holds its lock, which is only tried. Reads nothing if the block was freed: the item is then pushed again.
    /// Called without locks.
    ///
    /// # Errors
    /// [`Error::Device`]; damage.
    fn read_buffer(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Bytes of memory of the item itself if no cache counts them, as those of an intent.
    fn uncounted(&self) -> usize {
        0
    }

    /// The write of the buffer with the item's changes has ended, with success if `ok`.
    ///
    /// # Locking
    /// Never waits for a lock that a transaction may hold: the transaction may wait for log space, which comes only
    /// after this returns.
    fn write_done(&self, ok: bool);
}

/// Prefetches a later item of a loop, of which `rest` are to come. Most items of a checkpoint were last changed on
/// another CPU, long ago.
#[inline]
pub(super) fn prefetch_next(rest: &[Arc<dyn LogItem>]) {
    if let Some(item) = rest.get(PREFETCH_ITEMS) {
        prefetch(item.core());
    }
}

/// Fate of an item when its checkpoint is stable.
#[derive(Debug)]
pub enum AfterCommit {
    /// Inserted into the AIL: it must be written back.
    Insert,
    /// Not inserted, and removed from the AIL if it is there: it is no longer needed.
    Remove,
    /// Not inserted, and this intent is removed from the AIL: the item is its done item.
    ReleaseIntent(Arc<dyn LogItem>),
}

/// The part of a log item that the journal uses.
#[derive(Debug)]
pub struct ItemCore {
    pins: AtomicU32,
    lsn: AtomicU64,
    /// It keeps its LSN when it is logged again, until it is written back.
    keeps_position: AtomicBool,
    /// LSN at which it was logged again meanwhile; 0 for none.
    later: AtomicU64,
    /// The last checkpoint that it was logged in; 0 for none.
    logged_in: AtomicU64,
    slots: SpinLock<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    current: Option<PendingVector>,
    /// Rarely used: a push takes all vectors at once.
    previous: Option<Box<PendingVector>>,
}

#[derive(Debug)]
struct PendingVector {
    checkpoint: u64,
    /// Order number of its last commit.
    order: u64,
    /// Bytes of log that the vector takes.
    logged: u64,
    /// Bytes of memory that it takes.
    memory: u64,
    /// `None` only while it is being made.
    vector: Option<LogVector>,
}

impl Default for ItemCore {
    fn default() -> Self {
        Self {
            pins: AtomicU32::new(0),
            lsn: AtomicU64::new(0),
            keeps_position: AtomicBool::new(false),
            later: AtomicU64::new(0),
            logged_in: AtomicU64::new(0),
            slots: SpinLock::new(Rank::ItemSlot, Slots::default()),
        }
    }
}

impl ItemCore {
    /// Calls `format` to update the checkpoint's log vector or, if it is `None`, to create it. The vector of an earlier
    /// checkpoint waits beside it for its push.
    ///
    /// # Locking
    /// The caller holds the item's own lock. Only the push of the previous checkpoint can contend for the slots.
    pub fn log(&self, at: CommitPosition, format: impl FnOnce(&mut Option<LogVector>)) -> VectorGrowth {
        let CommitPosition { checkpoint, order } = at;
        let mut slots = self.slots.lock();
        let Slots { current, previous } = &mut *slots;
        let is_first = current.as_ref().is_none_or(|pending| pending.checkpoint != checkpoint);
        if is_first {
            debug_assert!(current.is_none() || previous.is_none(), "a push left a log vector behind");
            if let Some(older) =
                current.replace(PendingVector { checkpoint, order, logged: 0, memory: 0, vector: None })
            {
                *previous = Some(Box::new(older));
            }
        }
        if is_first {
            self.logged_in.store(checkpoint, Ordering::Relaxed);
        }
        let Some(pending) = current else { return VectorGrowth::default() };
        pending.order = order;
        format(&mut pending.vector);
        let vector = pending.vector.as_ref();
        let (logged, memory) = vector.map_or((0, 0), |vector| (vector.logged(), vector.memory()));
        // Far below 2^63.
        let growth = |before: &mut u64, now: u64| now as i64 - std::mem::replace(before, now) as i64;
        VectorGrowth {
            bytes: growth(&mut pending.logged, logged),
            memory: growth(&mut pending.memory, memory),
            is_first,
        }
    }

    /// Like [`log`](Self::log), for an item that is logged as regions: `format` gets those of the checkpoint, or none.
    pub fn log_regions(&self, at: CommitPosition, format: impl FnOnce(&mut LogRegions)) -> VectorGrowth {
        self.log(at, |vector| match vector {
            Some(LogVector::Regions(regions)) => format(regions),
            _ => {
                let mut regions = LogRegions::default();
                format(&mut regions);
                *vector = Some(LogVector::Regions(regions));
            }
        })
    }

    /// Takes the vector of `checkpoint` for its push, with its order number.
    pub fn fetch(&self, checkpoint: u64) -> Option<(u64, LogVector)> {
        let mut slots = self.slots.lock();
        let is_it = |pending: &PendingVector| pending.checkpoint == checkpoint;
        let pending = if slots.previous.as_deref().is_some_and(is_it) {
            *slots.previous.take()?
        } else if slots.current.as_ref().is_some_and(is_it) {
            slots.current.take()?
        } else {
            return None;
        };
        Some((pending.order, pending.vector?))
    }

    /// From now on the item must be written back before the tail may pass its LSN, even if it is logged again: not all
    /// of it is in the log.
    pub(super) fn keep_position(&self) {
        self.keeps_position.store(true, Ordering::Release);
    }

    /// Whether it must keep its LSN; if so, records that it was logged again at `lsn`.
    pub(super) fn keeps_position_at(&self, lsn: Lsn) -> bool {
        let keeps_position = self.keeps_position.load(Ordering::Acquire);
        if keeps_position {
            self.later.store(lsn.get(), Ordering::Release);
        }
        keeps_position
    }

    /// It was logged again at its present LSN. For a write in flight that counts as a later one.
    pub(super) fn relogged_at(&self, lsn: Lsn) {
        self.later.store(lsn.get(), Ordering::Release);
    }

    /// It leaves its bucket: returns the later LSN that was recorded, if any.
    pub(super) fn leave(&self) -> Option<Lsn> {
        self.keeps_position.store(false, Ordering::Release);
        let later = self.later.swap(0, Ordering::AcqRel);
        (later != 0).then_some(Lsn(later))
    }

    /// The last checkpoint that it was logged in: when that is stable, all its changes are. 0 if it was not logged
    /// since it was read.
    pub fn logged_in(&self) -> u64 {
        self.logged_in.load(Ordering::Relaxed)
    }

    /// One more checkpoint that is not stable contains the item.
    pub fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    /// One less; returns whether that was the last.
    pub fn unpin(&self) -> bool {
        self.pins.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether a change of the item is not in the stable log: it must not be written back.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    /// LSN of the item in the AIL; `None` if it is not there.
    pub fn lsn(&self) -> Option<Lsn> {
        Some(self.lsn.load(Ordering::Acquire)).filter(|lsn| *lsn != 0).map(Lsn)
    }

    /// Sets the LSN, under the lock of the AIL.
    pub fn set_lsn(&self, lsn: Option<Lsn>) {
        self.lsn.store(lsn.map_or(0, Lsn::get), Ordering::Release);
    }
}

/// Position of an item's commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPosition {
    /// The checkpoint that it is part of.
    pub checkpoint: u64,
    /// Order number: that of the commit, and the item's index within it.
    pub order: u64,
}

/// Change of an item's log vector by a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorGrowth {
    /// Bytes of log by which the checkpoint grew, or shrank.
    pub bytes: i64,
    /// Bytes of memory by which it grew, or shrank.
    pub memory: i64,
    /// Whether the item is new in the checkpoint.
    pub is_first: bool,
}

/// The part of an item that a checkpoint writes.
#[derive(Debug)]
pub enum LogVector {
    /// All regions of an item that is not a buffer.
    Regions(LogRegions),
    /// Chunks of a buffer.
    Buffer(Box<BufferVector>),
    /// Nothing: the item is only written back before the tail passes this checkpoint.
    Ordered,
}

impl LogVector {
    /// Number of regions.
    pub fn count(&self) -> usize {
        match self {
            Self::Regions(regions) => regions.count(),
            Self::Buffer(buffer_vector) => buffer_vector.count(),
            Self::Ordered => 0,
        }
    }

    /// Bytes of log that it takes, with the headers of its regions.
    pub fn logged(&self) -> u64 {
        logged(self.bytes(), self.count())
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Regions(regions) => regions.bytes(),
            Self::Buffer(buffer_vector) => buffer_vector.bytes(),
            Self::Ordered => 0,
        }
    }

    /// Bytes of memory that it takes beside itself: of a buffer all bytes, however few of them are logged.
    #[inline]
    pub fn memory(&self) -> u64 {
        let bytes = match self {
            Self::Regions(regions) => regions.capacity(),
            Self::Buffer(buffer_vector) => size_of::<BufferVector>() + buffer_vector.capacity(),
            Self::Ordered => 0,
        };
        bytes as u64
    }

    /// Prefetches its memory.
    #[inline]
    pub fn prefetch(&self) {
        match self {
            Self::Regions(regions) => prefetch(regions.all()),
            Self::Buffer(buffer_vector) => prefetch(&**buffer_vector),
            Self::Ordered => {}
        }
    }

    /// Calls `give` with each region: as many and as long as [`count`](Self::count) and [`bytes`](Self::bytes) return.
    pub fn for_each(&self, mut give: impl FnMut(&[u8])) {
        match self {
            Self::Regions(regions) => regions.iter().for_each(give),
            Self::Buffer(buffer_vector) => buffer_vector.for_each(&mut give),
            Self::Ordered => {}
        }
    }
}

/// One item of a transaction that is being committed.
pub trait CommitItem {
    /// The log item.
    fn item(&self) -> Arc<dyn LogItem>;

    /// Updates the item's log vector of the checkpoint, by [`ItemCore::log`]; in a new checkpoint, logs all changes
    /// that are not written back.
    fn log(&mut self, at: CommitPosition) -> VectorGrowth;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(byte: u8) -> LogVector {
        let mut regions = LogRegions::default();
        regions.push(&[byte; 4]);
        LogVector::Regions(regions)
    }

    fn byte(vector: &LogVector) -> u8 {
        let mut found = 0;
        vector.for_each(|region| found = region[0]);
        found
    }

    #[test]
    fn relogging_in_a_new_checkpoint_leaves_the_old_vector_to_its_push() {
        let core = ItemCore::default();
        let log = |checkpoint, order, value| {
            let mut before = None;
            let grown = core.log(CommitPosition { checkpoint, order }, |into| {
                before = into.as_ref().map(byte);
                *into = Some(vector(value));
            });
            assert_eq!(grown.bytes == 0, before.is_some());
            (before, grown.is_first)
        };
        assert_eq!(log(7, 1, 1), (None, true));
        assert_eq!(log(7, 2, 2), (Some(1), false));
        assert_eq!(log(8, 3, 3), (None, true), "the vector of another checkpoint is not updated");
        assert_eq!(core.fetch(7).map(|(order, found)| (order, byte(&found))), Some((2, 2)));
        assert!(core.fetch(7).is_none());
        assert_eq!(log(8, 4, 4), (Some(3), false));
        assert_eq!(core.fetch(8).map(|(order, found)| (order, byte(&found))), Some((4, 4)));
    }

    #[test]
    fn only_the_last_unpin_is_the_last() {
        let core = ItemCore::default();
        core.pin();
        core.pin();
        assert!(!core.unpin());
        assert!(core.is_pinned());
        assert!(core.unpin());
        assert!(!core.is_pinned());
    }
}
