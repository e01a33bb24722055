//! What all log items share, and what a commit leaves of one for the log.
//!
//! # Invariants
//! - A commit never waits for a push to end. An item keeps up to two snapshots: that of the checkpoint being built, and
//!   that of the one before it, if its push has not fetched it yet. A third cannot be needed: a push fetches all its
//!   snapshots before the next checkpoint is closed.
//! - An item is pinned once for each checkpoint that it is part of and that is not stable.
//!
//! # Locking
//! [`ItemCore`]'s slots have rank `ItemSlot`: a commit holds it while it formats, a push while it takes a snapshot out,
//! so they meet at most once in a checkpoint, for that long. What is formatted is protected by the item's own lock (a
//! buffer's, an inode's), which the committing transaction holds.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base::Lsn;
use base::lock::{Brief, Rank};
use base::prefetch::prefetch;

use super::buffer_vector::BufferVector;
use super::error::Error;
use super::regions::Regions;
use super::sizes::logged;
use super::tuning::PREFETCH_ITEMS;
use super::writeback::{DelwriQueue, PushResult};

/// Something that is logged as a whole and written home later: a buffer, an inode, an intent.
pub trait LogItem: Send + Sync + Debug {
    /// The part that is the same for all.
    fn core(&self) -> &ItemCore;

    /// The checkpoint at `lsn` that holds this item is stable: where to go now. Called after unpinning.
    fn committed(&self, lsn: Lsn) -> AfterCommit {
        let _ = lsn;
        AfterCommit::Insert
    }

    /// Puts what the item changed into its buffer at home, and that buffer into `batch`. Never waits for a lock.
    fn push(self: Arc<Self>, batch: &mut DelwriQueue<'_>) -> PushResult;

    /// Reads the buffer at the item's place, for who was told [`PushResult::NotRead`]; `false` where somebody has its
    /// lock, which is only tried. Nothing is read where the place was freed: the item is to be flushed again. Called
    /// without locks.
    ///
    /// # Errors
    /// [`Error::Device`]; damage.
    fn read_buffer(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// The buffer with the item's changes was written home, or, if not `ok`, was not.
    ///
    /// # Locking
    /// Never waits for a lock that a transaction holds: that one may wait for log space, which comes only when this
    /// returns.
    fn write_done(&self, ok: bool);
}

/// For who visits items in a row, of which `rest` are still to come: asks for the memory of a later one. Most items of
/// a checkpoint were last changed on another CPU, long before.
#[inline]
pub(super) fn prefetch_next(rest: &[Arc<dyn LogItem>]) {
    if let Some(item) = rest.get(PREFETCH_ITEMS) {
        prefetch(item.core());
    }
}

/// Where an item goes when its checkpoint is stable.
#[derive(Debug)]
pub enum AfterCommit {
    /// Into the active item list: it has to be written home.
    Insert,
    /// Nowhere, and out of the active item list if it is there: nothing of it is needed any more.
    Remove,
    /// Nowhere; and this other item leaves the active item list: a done item answers its intent.
    ReleaseIntent(Arc<dyn LogItem>),
}

/// The part of every log item that the journal works with.
#[derive(Debug)]
pub struct ItemCore {
    pins: AtomicU32,
    lsn: AtomicU64,
    /// Its place in the log stays, though it is logged again, until it was written home.
    keeps_position: AtomicBool,
    /// Where it was logged again meanwhile; 0 for nowhere.
    later: AtomicU64,
    /// The last checkpoint that it was logged in; 0 for none.
    logged_in: AtomicU64,
    slots: Brief<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    current: Option<PendingVector>,
    /// Rarely there: a push takes all snapshots at once.
    previous: Option<Box<PendingVector>>,
}

#[derive(Debug)]
struct PendingVector {
    checkpoint: u64,
    /// Where the last commit of it stands among all commits.
    order: u64,
    /// Bytes that the snapshot takes of the log.
    logged: u64,
    /// Absent only while it is made.
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
            slots: Brief::new(Rank::ItemSlot, Slots::default()),
        }
    }
}

impl ItemCore {
    /// Has `format` bring the checkpoint's snapshot up to date, or, where it is `None`, make it. A snapshot of an
    /// earlier checkpoint waits beside it for its push.
    ///
    /// # Locking
    /// The caller holds the item's own lock. Only the push of the checkpoint before can meet this on the slots.
    pub fn log(&self, at: CommitPosition, format: impl FnOnce(&mut Option<LogVector>)) -> VectorGrowth {
        let CommitPosition { checkpoint, order } = at;
        let mut slots = self.slots.lock();
        let Slots { current, previous } = &mut *slots;
        let is_first = current.as_ref().is_none_or(|pending| pending.checkpoint != checkpoint);
        if is_first {
            debug_assert!(current.is_none() || previous.is_none(), "a push left a snapshot behind");
            if let Some(older) = current.replace(PendingVector { checkpoint, order, logged: 0, vector: None })
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
        let logged = pending.vector.as_ref().map_or(0, LogVector::logged);
        let before = std::mem::replace(&mut pending.logged, logged);
        VectorGrowth { bytes: logged as i64 - before as i64, is_first } // far below 2^63
    }

    /// The same for an item that is logged as regions: `format` gets those that the checkpoint holds, or none.
    pub fn log_regions(&self, at: CommitPosition, format: impl FnOnce(&mut Regions)) -> VectorGrowth {
        self.log(at, |vector| match vector {
            Some(LogVector::Regions(regions)) => format(regions),
            _ => {
                let mut regions = Regions::default();
                format(&mut regions);
                *vector = Some(LogVector::Regions(regions));
            }
        })
    }

    /// Fetches the snapshot of `checkpoint` for its push, with its place among all commits.
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

    /// From now on the item must be written home before the log may pass its place, though it is logged again: not all
    /// of it is in the log.
    pub(super) fn keep_position(&self) {
        self.keeps_position.store(true, Ordering::Release);
    }

    /// Whether it must keep its place; if so, notes that it was logged again at `lsn`.
    pub(super) fn keeps_position_at(&self, lsn: Lsn) -> bool {
        let keeps_position = self.keeps_position.load(Ordering::Acquire);
        if keeps_position {
            self.later.store(lsn.get(), Ordering::Release);
        }
        keeps_position
    }

    /// It was logged again at the place where it is: that is a later one, as far as a write home is concerned that is
    /// under way.
    pub(super) fn relogged_at(&self, lsn: Lsn) {
        self.later.store(lsn.get(), Ordering::Release);
    }

    /// It leaves its place: gives the later one that it noted, if any.
    pub(super) fn leave(&self) -> Option<Lsn> {
        self.keeps_position.store(false, Ordering::Release);
        let later = self.later.swap(0, Ordering::AcqRel);
        (later != 0).then_some(Lsn(later))
    }

    /// The last checkpoint that it was logged in: when that is stable, so are all of its changes. 0 where it was not
    /// logged since it came to memory.
    pub fn logged_in(&self) -> u64 {
        self.logged_in.load(Ordering::Relaxed)
    }

    /// One more checkpoint that is not stable holds the item.
    pub fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    /// One less; whether that was the last.
    pub fn unpin(&self) -> bool {
        self.pins.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether some change of the item is not in the stable log: it must not be written home.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    /// The item's place in the active item list; `None` where it is not in it.
    pub fn lsn(&self) -> Option<Lsn> {
        Some(self.lsn.load(Ordering::Acquire)).filter(|lsn| *lsn != 0).map(Lsn)
    }

    /// Moves the item within the active item list, under that list's lock.
    pub fn set_lsn(&self, lsn: Option<Lsn>) {
        self.lsn.store(lsn.map_or(0, Lsn::get), Ordering::Release);
    }
}

/// Where a commit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPosition {
    /// The checkpoint that it is part of.
    pub checkpoint: u64,
    /// Its number among all commits, and the item's within it.
    pub order: u64,
}

/// What a commit made of an item's part of the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorGrowth {
    /// By how many bytes of the log the checkpoint grew, or shrank.
    pub bytes: i64,
    /// Whether the item is new in it.
    pub is_first: bool,
}

/// What a checkpoint will write of an item.
#[derive(Debug)]
pub enum LogVector {
    /// Regions, ready for the log.
    Regions(Regions),
    /// Chunks of a buffer.
    Buffer(Box<BufferVector>),
    /// Nothing: the item is only written home before the log passes this checkpoint.
    Ordered,
}

impl LogVector {
    /// Regions that the log will hold.
    pub fn count(&self) -> usize {
        match self {
            Self::Regions(regions) => regions.count(),
            Self::Buffer(buffer_vector) => buffer_vector.count(),
            Self::Ordered => 0,
        }
    }

    /// Bytes that it takes of the log, with the headers of its regions.
    pub fn logged(&self) -> u64 {
        logged(self.bytes(), self.count())
    }

    /// Bytes of all regions together.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Regions(regions) => regions.len(),
            Self::Buffer(buffer_vector) => buffer_vector.bytes(),
            Self::Ordered => 0,
        }
    }

    /// Asks for its memory, which is about to be visited.
    #[inline]
    pub fn prefetch(&self) {
        match self {
            Self::Regions(regions) => prefetch(regions.all()),
            Self::Buffer(buffer_vector) => prefetch(&**buffer_vector),
            Self::Ordered => {}
        }
    }

    /// Gives each region in turn: as many and as long as [`count`](Self::count) and [`bytes`](Self::bytes) say.
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
    /// The item.
    fn item(&self) -> Arc<dyn LogItem>;

    /// Brings up to date what the checkpoint holds of it, by [`ItemCore::log`]; or, in a new checkpoint, puts in
    /// everything that has changed and is not stable at home.
    fn log(&mut self, at: CommitPosition) -> VectorGrowth;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(byte: u8) -> LogVector {
        let mut regions = Regions::default();
        regions.push(&[byte; 4]);
        LogVector::Regions(regions)
    }

    fn byte(vector: &LogVector) -> u8 {
        let mut found = 0;
        vector.for_each(|region| found = region[0]);
        found
    }

    #[test]
    fn relogging_in_a_new_checkpoint_leaves_the_old_snapshot_to_its_push() {
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
        assert_eq!(
            log(8, 3, 3),
            (None, true),
            "the snapshot of another checkpoint is not brought up to date"
        );
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
