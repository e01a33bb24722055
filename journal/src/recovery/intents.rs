//! Intents and their done items. An intent without a done item is work that a mount by Linux would finish.

use std::collections::BTreeMap;
use std::fmt;

use base::{Ino, Lsn};
use format::damage::Damage;
use format::log::attr::{AttrIntent, AttrOperation};
use format::log::exchange::ExchangeIntent;
use format::log::intent::{self, CountTarget, FreeTarget, MapTarget};
use format::log::item::ItemType;

use super::replay::{ReplayContext, ReplayItem, ReplayOutcome, ReplayResult};
use crate::assemble::RawLogItem;
use crate::describe;

/// An intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// LSN of its transaction.
    pub lsn: Lsn,
    /// Log item type.
    pub kind: ItemType,
    /// Identifier that its done item repeats.
    pub id: u64,
    /// The work.
    pub body: IntentOperation,
}

/// The work of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentOperation {
    /// Free extents, which no longer belong to a file.
    Free(Vec<FreeTarget>),
    /// Update the reverse-mapping tree. No file changes.
    Rmap(Vec<MapTarget>),
    /// Update the reference-count tree. No file changes.
    Refcount(Vec<CountTarget>),
    /// Change a file's extent map.
    Bmap(Vec<MapTarget>),
    /// Change an extended attribute or a parent pointer.
    Attr(Box<AttrChange>),
    /// Exchange ranges of two files.
    Exchange(ExchangeIntent),
}

/// A change of one attribute, from [`AttrIntent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttrChange {
    /// Inode number.
    pub ino: Ino,
    /// Inode generation, for parent pointers.
    pub generation: u32,
    /// Operation.
    pub operation: AttrOperation,
    /// Namespace bits.
    pub namespace: u32,
    /// Attribute name, without the prefix of its namespace.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
    /// New name of a parent pointer.
    pub new_name: Vec<u8>,
    /// New value of a parent pointer.
    pub new_value: Vec<u8>,
}

impl AttrChange {
    fn of(intent: &AttrIntent<'_>) -> Self {
        Self {
            ino: intent.ino,
            generation: intent.generation,
            operation: intent.operation,
            namespace: intent.namespace,
            name: intent.name.to_vec(),
            value: intent.value.to_vec(),
            new_name: intent.new_name.unwrap_or_default().to_vec(),
            new_value: intent.new_value.unwrap_or_default().to_vec(),
        }
    }
}

impl Intent {
    /// Decodes an intent; `None` for other items.
    pub fn parse(item: &RawLogItem<'_>, lsn: Lsn) -> Result<Option<Self>, Damage> {
        let region = item.region(0);
        let (id, body) = match item.kind {
            ItemType::Efi => {
                intent::parse_free(region).map(|(id, list)| (id, IntentOperation::Free(list)))?
            }
            ItemType::Rui => {
                intent::parse_maps(region).map(|(id, list)| (id, IntentOperation::Rmap(list)))?
            }
            ItemType::Cui => {
                intent::parse_counts(region).map(|(id, list)| (id, IntentOperation::Refcount(list)))?
            }
            ItemType::Bui => {
                intent::parse_maps(region).map(|(id, list)| (id, IntentOperation::Bmap(list)))?
            }
            ItemType::Attri => {
                let attr = AttrIntent::parse(item.regions())?;
                (attr.id, IntentOperation::Attr(Box::new(AttrChange::of(&attr))))
            }
            ItemType::Xmi => ExchangeIntent::parse(region)
                .map(|exchange| (exchange.id, IntentOperation::Exchange(exchange)))?,
            _ => return Ok(None),
        };
        Ok(Some(Self { lsn, kind: item.kind, id, body }))
    }

    /// The files whose data or attributes it could change.
    pub fn files_changed(&self) -> Vec<Ino> {
        match &self.body {
            IntentOperation::Free(_) | IntentOperation::Rmap(_) | IntentOperation::Refcount(_) => Vec::new(),
            IntentOperation::Bmap(maps) => maps.iter().map(|map| Ino(map.owner)).collect(),
            IntentOperation::Attr(change) => vec![change.ino],
            IntentOperation::Exchange(exchange) => exchange.files.to_vec(),
        }
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe::intent(self).fmt(f)
    }
}

/// Intents without a done item so far.
#[derive(Debug, Default)]
pub(super) struct PendingIntents {
    /// With their index among all intents of the log.
    intents: BTreeMap<(ItemType, u64), (u64, Intent)>,
    seen: u64,
}

impl PendingIntents {
    fn insert(&mut self, intent: Intent) {
        self.intents.insert((intent.kind, intent.id), (self.seen, intent));
        self.seen += 1;
    }

    fn remove(&mut self, kind: ItemType, id: u64) {
        self.intents.remove(&(kind, id));
    }

    /// The remaining intents, in log order.
    pub fn in_order(self) -> Vec<Intent> {
        let mut intents: Vec<_> = self.intents.into_values().collect();
        intents.sort_unstable_by_key(|(place, _)| *place);
        intents.into_iter().map(|(_, intent)| intent).collect()
    }
}

/// Replay of an intent.
pub struct IntentReplay;

impl ReplayItem for IntentReplay {
    fn second_pass(&self, item: &RawLogItem<'_>, context: &mut ReplayContext<'_>) -> ReplayResult {
        let Some(intent) = Intent::parse(item, context.lsn)? else { return Ok(ReplayOutcome::Unsupported) };
        context.intents.insert(intent);
        Ok(ReplayOutcome::Replayed)
    }
}

/// Replay of a done item of any type.
pub struct DoneReplay;

impl ReplayItem for DoneReplay {
    fn second_pass(&self, item: &RawLogItem<'_>, context: &mut ReplayContext<'_>) -> ReplayResult {
        let Some(kind) = item.kind.answers() else { return Ok(ReplayOutcome::Unsupported) };
        let id = intent::parse_done(item.region(0))?;
        // Intents before the tail are not known here and not needed.
        context.intents.remove(kind, id);
        Ok(ReplayOutcome::Replayed)
    }
}
