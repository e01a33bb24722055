//! What a type of item does in each pass, and the registry of types. Upper layers register theirs here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use base::{Daddr, Ino, Lsn};
use block::{Device, DeviceError};
use format::Geometry;
use format::damage::{Damage, Place};
use format::log::item::ItemType;

use super::buffers::Buffers;
use super::cancel::Cancelled;
use super::intents::Unanswered;
use super::order;
use super::report::Report;
use super::split::Split;
use super::trust::{Found, Row};
use super::{Options, buffer, icreate, inode, intents, named};
use crate::assemble::RawItem;
use crate::error::LogError;

/// What one type of item does when a log is replayed.
pub trait Replay: Sync {
    /// When its turn comes within its transaction.
    fn order(&self, item: &RawItem<'_>) -> order::Place {
        order::place(item.kind, 0)
    }

    /// What it leaves behind in the first pass.
    fn first_pass(&self, _item: &RawItem<'_>, _state: &mut FirstPass) -> Result<(), Failure> {
        Ok(())
    }

    /// Replays it.
    fn second_pass(&self, item: &RawItem<'_>, context: &mut Context<'_>) -> Result<Outcome, Failure>;
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was replayed, or (intents, cancellations) did what it is there for.
    Replayed,
    /// What lies on disk is newer.
    Newer,
    /// Its buffer was freed later on.
    Cancelled,
    /// Quota, which Linux recounts: named and left out.
    Quota,
    /// No recovery for its type.
    Unsupported,
    /// It is damaged: see the report's problems.
    Failed,
}

/// Why an item was not replayed.
#[derive(Debug)]
pub enum Failure {
    /// A read or a write failed.
    Device(DeviceError),
    /// The item, or what it meets on disk, is damaged.
    Damage(Place, Damage),
}

impl Failure {
    /// The same as an error of the whole recovery.
    pub fn into_error(self, lsn: Lsn, kind: ItemType) -> LogError {
        match self {
            Self::Device(error) => LogError::Device(error),
            Self::Damage(place, damage) => LogError::Item { lsn, kind, place, damage },
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Self {
        Self::Damage(Place::default(), damage)
    }
}

/// Says where a damage lies.
pub(super) trait At<T> {
    /// At a place.
    fn at(self, place: Place) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T, Damage> {
    fn at(self, place: Place) -> Result<T, Failure> {
        self.map_err(|damage| Failure::Damage(place, damage))
    }
}

/// What the first pass collects.
#[derive(Debug, Default)]
pub struct FirstPass {
    /// Buffers that are cancelled somewhere in the log.
    pub cancelled: Cancelled,
    /// Which quotas are switched off somewhere in the log: bits as in `quota::OFF_FLAGS`.
    pub quotas_off: u32,
}

/// What was judged once and stays: a buffer or an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A buffer, by its address.
    Buffer(Daddr),
    /// An inode.
    Inode(Ino),
}

/// The second pass.
#[derive(Debug)]
pub struct Context<'a> {
    /// The volume's shape, as the last replayed superblock says.
    pub geometry: Geometry,
    /// Where the log ends.
    pub head: Lsn,
    /// Of the transaction at hand.
    pub lsn: Lsn,
    /// The target's blocks.
    pub buffers: Buffers<'a>,
    /// Cancellations still ahead.
    pub cancelled: Cancelled,
    /// Intents without a done item so far.
    pub(super) intents: Unanswered,
    /// What was done so far.
    pub report: Report,
    pub(super) split: Split,
    found: HashMap<Target, Found>,
}

impl<'a> Context<'a> {
    /// At the beginning of the second pass.
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
            buffers: Buffers::new(target, options.memory_bytes),
            cancelled: first.cancelled,
            intents: Unanswered::default(),
            report: Report { quotas_off: first.quotas_off, ..Report::default() },
            split: Split::default(),
            found: HashMap::new(),
        }
    }

    /// Judges by the table of [`super::trust`], by what `target` was when it was first met; `now` is what it is now.
    pub fn judge(&mut self, target: Target, now: Found) -> Row {
        let report = &mut self.report;
        let found = *self.found.entry(target).or_insert_with(|| {
            if now == Found::Torn {
                report.not_believed.push(target);
            }
            now
        });
        found.row(self.lsn, self.head)
    }

    /// Forgets what `target` was: from here on it is new.
    pub fn made_new(&mut self, target: Target) {
        self.found.insert(target, Found::Unstamped);
    }

    /// The report, with the intents that were never done, in the order of the log: an extent is freed only after its
    /// reverse mapping was removed.
    pub fn into_report(self) -> Report {
        Report { unfinished: self.intents.in_order(), ..self.report }
    }
}

/// Which types are replayed, and how.
#[derive(Clone)]
pub struct Registry {
    types: BTreeMap<ItemType, &'static dyn Replay>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.types.keys()).finish()
    }
}

/// What this crate replays. A type that is in no table is unsupported.
const STANDARD: &[(ItemType, &dyn Replay)] = &[
    (ItemType::Buffer, &buffer::BufferReplay),
    (ItemType::Inode, &inode::InodeReplay),
    (ItemType::InodeCreate, &icreate::InodeCreateReplay),
    (ItemType::Dquot, &named::DquotReplay),
    (ItemType::QuotaOff, &named::QuotaOffReplay),
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

impl Default for Registry {
    /// All that this crate replays.
    fn default() -> Self {
        Self { types: STANDARD.iter().copied().collect() }
    }
}

impl Registry {
    /// Replays items of a type by `replay` from now on.
    pub fn register(&mut self, kind: ItemType, replay: &'static dyn Replay) {
        self.types.insert(kind, replay);
    }

    /// How items of a type are replayed.
    pub fn get(&self, kind: ItemType) -> Option<&'static dyn Replay> {
        self.types.get(&kind).copied()
    }
}
