//! Intents and their done items. An intent whose done item never comes is what a mount by Linux would still do.

use std::collections::BTreeMap;
use std::fmt;

use base::{Ino, Lsn};
use format::damage::Damage;
use format::log::attr::{AttrIntent, AttrOperation};
use format::log::exchange::ExchangeIntent;
use format::log::intent::{self, CountTarget, FreeTarget, MapTarget};
use format::log::item::ItemType;

use super::replay::{ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome};
use crate::assemble::RawLogItem;
use crate::describe;

/// An intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Of its transaction.
    pub lsn: Lsn,
    /// Its type.
    pub kind: ItemType,
    /// What ties the done item to it.
    pub id: u64,
    /// What it would do.
    pub body: IntentOperation,
}

/// What an intent would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentOperation {
    /// Free extents. They belong to no file any more.
    Free(Vec<FreeTarget>),
    /// Bring the reverse-mapping tree up to date. No file changes.
    Rmap(Vec<MapTarget>),
    /// Bring the reference-count tree up to date. No file changes.
    Refcount(Vec<CountTarget>),
    /// Change a file's extent map.
    Bmap(Vec<MapTarget>),
    /// Change an extended attribute or a parent pointer.
    Attr(Box<AttrChange>),
    /// Exchange ranges of two files.
    Exchange(ExchangeIntent),
}

/// A change of one attribute, as [`AttrIntent`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttrChange {
    /// The inode.
    pub ino: Ino,
    /// Its generation, for parent pointers.
    pub generation: u32,
    /// What to do.
    pub operation: AttrOperation,
    /// Bits of the namespace.
    pub namespace: u32,
    /// The attribute's name, without its namespace's prefix.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The name that a parent pointer gets.
    pub new_name: Vec<u8>,
    /// The value that a parent pointer gets.
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
    /// Decodes an intent; `None` for items that are none.
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

    /// The files whose contents or attributes it could change.
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
    /// With their place among all intents of the log.
    intents: BTreeMap<(ItemType, u64), (u64, Intent)>,
    seen: u64,
}

impl PendingIntents {
    fn insert(&mut self, intent: Intent) {
        self.intents.insert((intent.kind, intent.id), (self.seen, intent));
        self.seen += 1;
    }

    fn answer(&mut self, kind: ItemType, id: u64) {
        self.intents.remove(&(kind, id));
    }

    /// Those that are left, in the order of the log.
    pub fn in_order(self) -> Vec<Intent> {
        let mut intents: Vec<_> = self.intents.into_values().collect();
        intents.sort_unstable_by_key(|(place, _)| *place);
        intents.into_iter().map(|(_, intent)| intent).collect()
    }
}

/// An intent.
pub struct IntentReplay;

impl ReplayItem for IntentReplay {
    fn second_pass(
        &self,
        item: &RawLogItem<'_>,
        context: &mut ReplayContext<'_>,
    ) -> Result<ReplayOutcome, ReplayFailure> {
        let Some(intent) = Intent::parse(item, context.lsn)? else { return Ok(ReplayOutcome::Unsupported) };
        context.intents.insert(intent);
        Ok(ReplayOutcome::Replayed)
    }
}

/// A done item of any type.
pub struct DoneReplay;

impl ReplayItem for DoneReplay {
    fn second_pass(
        &self,
        item: &RawLogItem<'_>,
        context: &mut ReplayContext<'_>,
    ) -> Result<ReplayOutcome, ReplayFailure> {
        let Some(kind) = item.kind.answers() else { return Ok(ReplayOutcome::Unsupported) };
        let id = intent::parse_done(item.region(0))?;
        // An intent before the tail is not known here, and needs not be.
        context.intents.answer(kind, id);
        Ok(ReplayOutcome::Replayed)
    }
}
