//! What a type of item does in each pass, and the registry of types. Upper layers register theirs here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use base::{Daddr, Ino, Lsn};
use block::{Device, DeviceError};
use format::Geometry;
use format::damage::{Damage, Place};
use format::log::item::ItemType;

use super::buffers::ReplayBuffers;
use super::cancel::CancelledBuffers;
use super::intents::PendingIntents;
use super::lsn_check::{DiskState, LsnVerdict};
use super::order;
use super::report::RecoveryReport;
use super::split::SplitBlocks;
use super::{Options, buffer, icreate, inode, intents, quota};
use crate::assemble::RawLogItem;
use crate::error::LogError;

/// What one type of item does when a log is replayed.
pub trait ReplayItem: Sync {
    /// When its turn comes within its transaction.
    fn order(&self, item: &RawLogItem<'_>) -> order::ReplayOrder {
        order::order_of(item.kind, 0)
    }

    /// What it leaves behind in the first pass.
    fn first_pass(&self, _item: &RawLogItem<'_>, _state: &mut FirstPass) -> Result<(), ReplayFailure> {
        Ok(())
    }

    /// Replays it.
    fn second_pass(
        &self,
        item: &RawLogItem<'_>,
        context: &mut ReplayContext<'_>,
    ) -> Result<ReplayOutcome, ReplayFailure>;
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplayOutcome {
    /// It was replayed, or (intents, cancellations) did what it is there for.
    Replayed,
    /// What lies on disk is newer.
    Newer,
    /// Its buffer was freed later on.
    Cancelled,
    /// Quota, which Linux recounts: quota and left out.
    Quota,
    /// No recovery for its type.
    Unsupported,
    /// It is damaged: see the report's problems.
    Failed,
}

/// Why an item was not replayed.
#[derive(Debug)]
pub enum ReplayFailure {
    /// A read or a write failed.
    Device(DeviceError),
    /// The item, or what it meets on disk, is damaged.
    Damage(Place, Damage),
}

impl ReplayFailure {
    /// The same as an error of the whole recovery.
    pub fn into_error(self, lsn: Lsn, kind: ItemType) -> LogError {
        match self {
            Self::Device(error) => LogError::Device(error),
            Self::Damage(place, damage) => LogError::Item { lsn, kind, place, damage },
        }
    }
}

impl From<DeviceError> for ReplayFailure {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Damage> for ReplayFailure {
    fn from(damage: Damage) -> Self {
        Self::Damage(Place::default(), damage)
    }
}

/// Says where a damage lies.
pub(super) trait AtPlace<T> {
    /// AtPlace a place.
    fn at(self, place: Place) -> Result<T, ReplayFailure>;
}

impl<T> AtPlace<T> for Result<T, Damage> {
    fn at(self, place: Place) -> Result<T, ReplayFailure> {
        self.map_err(|damage| ReplayFailure::Damage(place, damage))
    }
}

/// What the first pass collects.
#[derive(Debug, Default)]
pub struct FirstPass {
    /// ReplayBuffers that are cancelled somewhere in the log.
    pub cancelled: CancelledBuffers,
    /// Which quotas are switched off somewhere in the log: bits as in `quota::OFF_FLAGS`.
    pub quotas_off: u32,
}

/// What was judged once and stays: a buffer or an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplayTarget {
    /// A buffer, by its address.
    Buffer(Daddr),
    /// An inode.
    Inode(Ino),
}

/// The second pass.
#[derive(Debug)]
pub struct ReplayContext<'a> {
    /// The volume's shape, as the last replayed superblock says.
    pub geometry: Geometry,
    /// Where the log ends.
    pub head: Lsn,
    /// Of the transaction at hand.
    pub lsn: Lsn,
    /// The target's blocks.
    pub buffers: ReplayBuffers<'a>,
    /// Cancellations still ahead.
    pub cancelled: CancelledBuffers,
    /// Intents without a done item so far.
    pub(super) intents: PendingIntents,
    /// What was done so far.
    pub report: RecoveryReport,
    pub(super) split: SplitBlocks,
    found: HashMap<ReplayTarget, DiskState>,
}

impl<'a> ReplayContext<'a> {
    /// AtPlace the beginning of the second pass.
    pub fn new(
        geometry: Geometry,
        head: Lsn,
        first: FirstPass,
        target: &'a dyn Device,
        options: &Options,
    ) -> Self {
        Self {
            geometry,
            head,
            lsn: Lsn(0),
            buffers: ReplayBuffers::new(target, options.memory_bytes),
            cancelled: first.cancelled,
            intents: PendingIntents::default(),
            report: RecoveryReport { quotas_off: first.quotas_off, ..RecoveryReport::default() },
            split: SplitBlocks::default(),
            found: HashMap::new(),
        }
    }

    /// Judges by the table of [`super::lsn_check`], by what `target` was when it was first met; `now` is what it is
    /// now.
    pub fn judge(&mut self, target: ReplayTarget, now: DiskState) -> LsnVerdict {
        let report = &mut self.report;
        let found = *self.found.entry(target).or_insert_with(|| {
            if now == DiskState::Torn {
                report.not_believed.push(target);
            }
            now
        });
        found.row(self.lsn, self.head)
    }

    /// Forgets what `target` was: from here on it is new.
    pub fn made_new(&mut self, target: ReplayTarget) {
        self.found.insert(target, DiskState::Unstamped);
    }

    /// The report, with the intents that were never done, in the order of the log: an extent is freed only after its
    /// reverse mapping was removed.
    pub fn into_report(self) -> RecoveryReport {
        RecoveryReport { unfinished: self.intents.in_order(), ..self.report }
    }
}

/// Which types are replayed, and how.
#[derive(Clone)]
pub struct ReplayRegistry {
    types: BTreeMap<ItemType, &'static dyn ReplayItem>,
}

impl fmt::Debug for ReplayRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.types.keys()).finish()
    }
}

/// What this crate replays. A type that is in no table is unsupported.
const STANDARD: &[(ItemType, &dyn ReplayItem)] = &[
    (ItemType::Buffer, &buffer::BufferReplay),
    (ItemType::Inode, &inode::InodeReplay),
    (ItemType::InodeCreate, &icreate::InodeCreateReplay),
    (ItemType::Dquot, &quota::DquotReplay),
    (ItemType::QuotaOff, &quota::QuotaOffReplay),
    (ItemType::Efi, &intents::IntentReplay),
    (ItemType::Rui, &intents::IntentReplay),
    (ItemType::Cui, &intents::IntentReplay),
    (ItemType::Bui, &intents::IntentReplay),
    (ItemType::Attri, &intents::IntentReplay),
    (ItemType::Xmi, &intents::IntentReplay),
    (ItemType::Efd, &intents::DoneReplay),
    (ItemType::Rud, &intents::DoneReplay),
    (ItemType::Cud, &intents::DoneReplay),
    (ItemType::Bud, &intents::DoneReplay),
    (ItemType::Attrd, &intents::DoneReplay),
    (ItemType::Xmd, &intents::DoneReplay),
];

impl Default for ReplayRegistry {
    /// All that this crate replays.
    fn default() -> Self {
        Self { types: STANDARD.iter().copied().collect() }
    }
}

impl ReplayRegistry {
    /// Replays items of a type by `replay` from now on.
    pub fn register(&mut self, kind: ItemType, replay: &'static dyn ReplayItem) {
        self.types.insert(kind, replay);
    }

    /// How items of a type are replayed.
    pub fn get(&self, kind: ItemType) -> Option<&'static dyn ReplayItem> {
        self.types.get(&kind).copied()
    }
}
