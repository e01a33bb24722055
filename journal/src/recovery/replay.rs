//! The interface of item types in each pass, and the registry of types, to which upper layers may add theirs.

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

/// Replay of one log item type.
pub trait ReplayItem: Sync {
    /// Position in the replay order of a transaction.
    fn order(&self, item: &RawLogItem<'_>) -> order::ReplayOrder {
        order::order_of(item.kind, 0)
    }

    /// Collects state in the first pass.
    fn first_pass(&self, _item: &RawLogItem<'_>, _state: &mut FirstPass) -> Result<(), ReplayFailure> {
        Ok(())
    }

    /// Replays the item.
    fn second_pass(&self, item: &RawLogItem<'_>, context: &mut ReplayContext<'_>) -> ReplayResult;
}

/// Result of replaying an item, or why it was not replayed.
pub type ReplayResult = Result<ReplayOutcome, ReplayFailure>;

/// Result of replaying an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplayOutcome {
    /// It was replayed; an intent or cancellation was processed.
    Replayed,
    /// The metadata on disk is newer.
    Newer,
    /// The buffer was freed later.
    Cancelled,
    /// Quota, which Linux recomputes.
    Quota,
    /// The type is not supported.
    Unsupported,
    /// The item is damaged: see the report's problems.
    Failed,
}

/// Why an item was not replayed.
#[derive(Debug)]
pub enum ReplayFailure {
    /// A read or a write failed.
    Device(DeviceError),
    /// The item, or the metadata on disk, is damaged.
    Damage(Place, Damage),
}

impl ReplayFailure {
    /// Converts to an error of the whole recovery.
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

/// Adds a location to damage.
pub(super) trait AtPlace<T> {
    /// AtPlace a place.
    fn at(self, place: Place) -> Result<T, ReplayFailure>;
}

impl<T> AtPlace<T> for Result<T, Damage> {
    fn at(self, place: Place) -> Result<T, ReplayFailure> {
        self.map_err(|damage| ReplayFailure::Damage(place, damage))
    }
}

/// State collected by the first pass.
#[derive(Debug, Default)]
pub struct FirstPass {
    /// Buffers that are cancelled somewhere in the log.
    pub cancelled: CancelledBuffers,
    /// Quotas that are switched off somewhere in the log: bits of `quota::OFF_FLAGS`.
    pub quotas_off: u32,
}

/// A buffer or inode that is compared with the log once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplayTarget {
    /// A buffer, by its address.
    Buffer(Daddr),
    /// An inode.
    Inode(Ino),
}

/// State of the second pass.
#[derive(Debug)]
pub struct ReplayContext<'a> {
    /// The volume's geometry, by the last replayed superblock.
    pub geometry: Geometry,
    /// LSN of the log's head.
    pub head: Lsn,
    /// LSN of the current transaction.
    pub lsn: Lsn,
    /// The target's blocks.
    pub buffers: ReplayBuffers<'a>,
    /// Remaining cancellations.
    pub cancelled: CancelledBuffers,
    /// Intents without a done item so far.
    pub(super) intents: PendingIntents,
    /// The report so far.
    pub report: RecoveryReport,
    pub(super) split: SplitBlocks,
    found: HashMap<ReplayTarget, DiskState>,
}

impl<'a> ReplayContext<'a> {
    /// The state at the beginning of the second pass.
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

    /// Looks `target` up in the table of [`super::lsn_check`], by its state when it was first met; `now` is its present
    /// state. now.
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

    /// Marks `target` as new: its earlier state is obsolete.
    pub fn made_new(&mut self, target: ReplayTarget) {
        self.found.insert(target, DiskState::Unstamped);
    }

    /// The report, with the unfinished intents in log order: an extent is freed only after its reverse mapping is
    /// removed.
    pub fn into_report(self) -> RecoveryReport {
        RecoveryReport { unfinished: self.intents.in_order(), ..self.report }
    }
}

/// The item types that are replayed.
#[derive(Clone)]
pub struct ReplayRegistry {
    types: BTreeMap<ItemType, &'static dyn ReplayItem>,
}

impl fmt::Debug for ReplayRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.types.keys()).finish()
    }
}

/// The item types of this crate. Other types are unsupported.
const STANDARD: &[(ItemType, &dyn ReplayItem)] = &[
    (ItemType::Buffer, &buffer::BufferReplay),
    (ItemType::Inode, &inode::InodeReplay),
    (ItemType::InodeCreate, &icreate::InodeCreateReplay),
    (ItemType::Dquot, &quota::QuotaReplay),
    (ItemType::QuotaOff, &quota::QuotaReplay),
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
    /// All item types of this crate.
    fn default() -> Self {
        Self { types: STANDARD.iter().copied().collect() }
    }
}

impl ReplayRegistry {
    /// The replay of a type.
    pub fn get(&self, kind: ItemType) -> Option<&'static dyn ReplayItem> {
        self.types.get(&kind).copied()
    }
}
