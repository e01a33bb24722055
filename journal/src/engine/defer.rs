//! Deferred operations: work that follows a change in transactions of its own.
//!
//! A change may free an extent, which changes the free-space trees of an AG whose lock must not be taken now. So the
//! freeing is *deferred*: the change's own transaction logs an intent; a later transaction does the work and logs a
//! done item. If the machine stops in between, recovery finds an intent without its done item, and does the work.
//!
//! # Invariants
//! - An intent and its cause are in one transaction; a done item and the work are in one.
//! - An intent stays in the AIL until its done item is stable, so the tail never passes it.
//! - An intent whose chain may have to wait for log space does not hold the tail back: a done item and a new
//!   intent are logged for it.
//! - Operations are done in the order in which they were deferred; those that an operation defers come next.
//! - Recovery knows only the order of the log: an extent is freed after its mapping was removed. So when an intent is
//!   logged anew, all after it are too; recovered intents are finished at once, without being moved.

use std::sync::Arc;

use base::Lsn;
use base::lock::{Mutex, Rank};
use format::log::item::ItemType;

use super::item::{AfterCommit, ItemCore, LogItem};
use super::regions::LogRegions;
use super::transaction::{Loggable, Transaction};
use super::writeback::{DelwriQueue, PushResult};
use error::Error;

/// The log items of a type of deferred operation.
#[derive(Clone, Copy, Debug)]
pub struct DeferredKind {
    /// Type of the intent.
    pub intent: ItemType,
    /// Type of the done item.
    pub done: ItemType,
    /// How many operations one intent may list.
    pub batch: usize,
    /// Whether the intent contains the number of its operations. If it is always one, these bytes may have to be zero.
    pub counted: bool,
    /// Whether the done item lists the operations again, as that of an extent free does.
    pub done_lists: bool,
}

impl DeferredKind {
    /// The usual form: the intent is counted, and only the intent lists the operations.
    pub const fn new(intent: ItemType, done: ItemType, batch: usize) -> Self {
        Self { intent, done, batch, counted: true, done_lists: false }
    }
}

/// One operation on one extent that is done later.
pub trait DeferredOperation: Send {
    /// The types of the intent and done log items of the operation.
    fn kind(&self) -> DeferredKind;

    /// Appends the operation in the format of the intent.
    fn encode(&self, out: &mut Vec<u8>);

    /// Does the work, or a part of it. `locked` are the items that the committing thread has locked: an operation on an
    /// inode finds it there, and its changes are logged with the work.
    ///
    /// # Errors
    /// Any error shuts the volume down.
    fn perform(
        &mut self,
        transaction: &mut Transaction,
        locked: &mut [&mut dyn Loggable],
    ) -> Result<DeferredProgress, Error>;
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferredProgress {
    /// It is finished.
    Done,
    /// It now represents the remaining work, and continues in the next transaction.
    Again,
}

/// Memory of the counts of references to an item.
const REFERENCES: usize = 2 * size_of::<usize>();

/// An intent in the log.
#[derive(Debug)]
struct IntentItem {
    core: ItemCore,
    id: u64,
}

impl LogItem for IntentItem {
    fn core(&self) -> &ItemCore {
        &self.core
    }

    fn push(self: Arc<Self>, _: &mut DelwriQueue<'_>) -> PushResult {
        PushResult::AwaitingDone
    }

    fn uncounted(&self) -> usize {
        size_of::<Self>() + REFERENCES
    }

    fn write_done(&self, _: bool) {}
}

/// A done item: when it is stable, its intent leaves the AIL.
#[derive(Debug)]
struct DoneItem {
    core: ItemCore,
    intent: Mutex<Option<Arc<IntentItem>>>,
}

impl LogItem for DoneItem {
    fn core(&self) -> &ItemCore {
        &self.core
    }

    fn committed(&self, _: Lsn) -> AfterCommit {
        match self.intent.lock().take() {
            Some(intent) => AfterCommit::ReleaseIntent(intent),
            None => AfterCommit::Remove,
        }
    }

    fn push(self: Arc<Self>, _: &mut DelwriQueue<'_>) -> PushResult {
        PushResult::Clean
    }

    fn uncounted(&self) -> usize {
        size_of::<Self>() + REFERENCES
    }

    fn write_done(&self, _: bool) {}
}

/// Operations that share an intent.
pub(super) struct PendingOperations {
    operations: Vec<Box<dyn DeferredOperation>>,
    intent: Option<Arc<IntentItem>>,
}

/// An intent that recovery found in the log and that must be finished.
#[derive(Debug)]
pub struct RecoveredIntent(Arc<IntentItem>);

impl RecoveredIntent {
    pub(super) fn new(id: u64) -> Self {
        Self(Arc::new(IntentItem { core: ItemCore::default(), id }))
    }

    pub(super) fn item(&self) -> Arc<dyn LogItem> {
        self.0.clone()
    }

    /// Logs its done item in this transaction, which does the work.
    pub(super) fn done(self, tx: &mut Transaction, kind: ItemType) {
        let regions = regions(kind, self.0.id, &[], false);
        let intent = Mutex::new(Rank::Leaf, Some(self.0));
        tx.log_item(Arc::new(DoneItem { core: ItemCore::default(), intent }), regions);
    }

    /// The intent with its operations.
    pub(super) fn group(self, operations: Vec<Box<dyn DeferredOperation>>) -> PendingOperations {
        PendingOperations { operations, intent: Some(self.0) }
    }
}

/// Commits the transaction's change and does all deferred operations. On return the last transaction of the chain is
/// open: it contains the last done item and is not committed.
pub(super) fn finish(tx: &mut Transaction, locked: &mut [&mut dyn Loggable]) -> Result<(), Error> {
    if tx.work.deferred.is_empty() && tx.work.resumed.is_empty() {
        return Ok(());
    }
    let mut groups: Vec<PendingOperations> = std::mem::take(&mut tx.work.resumed);
    loop {
        // Operations deferred by the last operation come before the rest.
        let fresh = group(std::mem::take(&mut tx.work.deferred));
        groups.splice(0..0, fresh);
        if groups.is_empty() {
            return Ok(());
        }
        for group in groups.iter_mut().filter(|group| group.intent.is_none()) {
            group.intent = log_intent(tx, &group.operations);
        }
        // A recovered intent needs no transaction before its own.
        if tx.has_changes(locked) {
            if tx.reserves_next() && groups.iter().any(|group| is_near_tail(tx, group)) {
                log_anew(tx, &mut groups);
            }
            tx.roll(locked)?;
        }
        let group = groups.remove(0);
        if let Some(rest) = perform(tx, group, locked)? {
            groups.iter_mut().for_each(|group| log_done_and_clear(tx, group));
            groups.insert(0, rest);
        }
    }
}

/// Groups operations that may share an intent, in their order.
fn group(operations: Vec<Box<dyn DeferredOperation>>) -> Vec<PendingOperations> {
    let mut groups: Vec<PendingOperations> = Vec::new();
    for operation in operations {
        let fits = |group: &&mut PendingOperations| {
            group.operations.first().is_some_and(|first| {
                let kind = first.kind();
                kind.intent == operation.kind().intent && group.operations.len() < kind.batch
            })
        };
        match groups.last_mut().filter(fits) {
            Some(group) => group.operations.push(operation),
            None => groups.push(PendingOperations { operations: vec![operation], intent: None }),
        }
    }
    groups
}

/// Does the operations of a group; returns the rest.
fn perform(
    tx: &mut Transaction,
    group: PendingOperations,
    locked: &mut [&mut dyn Loggable],
) -> Result<Option<PendingOperations>, Error> {
    log_done(tx, &group);
    let mut operations = group.operations.into_iter();
    while let Some(mut operation) = operations.next() {
        if operation.perform(tx, locked)? == DeferredProgress::Again {
            // The old intent is done; the rest gets a new one, in the same transaction.
            let operations = std::iter::once(operation).chain(operations).collect();
            return Ok(Some(PendingOperations { operations, intent: None }));
        }
    }
    Ok(None)
}

/// Whether its intent lies near the log's tail: a chain that waits for log space must not hold the tail there.
fn is_near_tail(tx: &Transaction, group: &PendingOperations) -> bool {
    group.intent.as_ref().and_then(|intent| intent.core.lsn()).is_some_and(|lsn| tx.is_near_tail(lsn))
}

/// Logs done items and new intents for all groups, in their order.
fn log_anew(tx: &mut Transaction, groups: &mut [PendingOperations]) {
    for group in groups {
        log_done_and_clear(tx, group);
        group.intent = log_intent(tx, &group.operations);
    }
}

/// Logs the done item of a group whose work is not done: it gets another intent.
fn log_done_and_clear(tx: &mut Transaction, group: &mut PendingOperations) {
    log_done(tx, group);
    group.intent = None;
}

fn log_intent(tx: &mut Transaction, operations: &[Box<dyn DeferredOperation>]) -> Option<Arc<IntentItem>> {
    let first = operations.first()?;
    let intent = Arc::new(IntentItem { core: ItemCore::default(), id: tx.next_intent_id() });
    let regions = regions(first.kind().intent, intent.id, operations, true);
    tx.log_item(intent.clone(), regions);
    Some(intent)
}

fn log_done(tx: &mut Transaction, group: &PendingOperations) {
    if let (Some(first), Some(intent)) = (group.operations.first(), &group.intent) {
        let kind = first.kind();
        let regions = regions(kind.done, intent.id, &group.operations, kind.done_lists);
        let intent = Mutex::new(Rank::Leaf, Some(Arc::clone(intent)));
        tx.log_item(Arc::new(DoneItem { core: ItemCore::default(), intent }), regions);
    }
}

/// The single region of an intent or done item.
fn regions(kind: ItemType, id: u64, operations: &[Box<dyn DeferredOperation>], lists: bool) -> LogRegions {
    let counted = lists && operations.first().is_some_and(|first| first.kind().counted);
    let count = if counted { operations.len() as u32 } else { 0 }; // at most a batch
    let mut regions = LogRegions::default();
    regions.push_with(|out| {
        out.extend_from_slice(&kind.code().to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
        if lists {
            operations.iter().for_each(|operation| operation.encode(out));
        }
    });
    regions
}
