//! What recovery leaves to be done: intents in the log that no done item answers.
//!
//! The log's tail stays at the oldest of them until all are answered; a power cut in between begins anew with those
//! that are left. In memory, for readers, there is no power cut: there each is logged anew, and nothing keeps the tail.

use base::{Ino, Lsn, errno};
use format::damage::{Damage, Place};
use inode::{InodeRef, LockedInode};
use journal::engine::RecoveredIntent;
use journal::engine::{DeferredOperation, Error as EngineError, Loggable};
use journal::recovery::{Intent, IntentOperation};

use crate::{Error, Result, Volume};

/// An unanswered intent, kept in the log.
pub(crate) struct Unanswered {
    intent: Intent,
    adopted: RecoveredIntent,
}

/// The places of the intents' records, which must stay.
pub(crate) fn places(intents: &[Intent]) -> impl Iterator<Item = Lsn> {
    intents.iter().map(|intent| intent.lsn)
}

impl Volume {
    /// Keeps the intents' records in the log. Before the first transaction.
    pub(crate) fn adopt(log: &journal::engine::Log, intents: &[Intent]) -> Vec<Unanswered> {
        let adopt = |intent: &Intent| Unanswered {
            intent: intent.clone(),
            adopted: log.add_recovered_intent(intent.lsn, intent.id),
        };
        intents.iter().map(adopt).collect()
    }

    /// Does what the intents ask for, in the order of the log.
    pub(crate) fn finish_intents(&self, intents: Vec<Unanswered>) -> Result<()> {
        let mut intents = intents.into_iter();
        intents.try_for_each(|Unanswered { intent, adopted }| self.finish(&intent, Some(adopted)))?;
        self.log.intents_finished();
        Ok(())
    }

    /// Does what one intent asks for. The log begins a new one where the old one's record is not kept.
    pub(crate) fn finish(&self, intent: &Intent, adopted: Option<RecoveredIntent>) -> Result<()> {
        if let IntentOperation::Attr(change) = &intent.body {
            let file = self.file(change.ino)?;
            return self.finish_attribute(&file, change, adopted);
        }
        let operations = self.operations(intent)?;
        let files = self.files(intent)?;
        let mut change = self.begin(self.reservations.intent)?;
        let mut locked: Vec<LockedInode> = files.iter().map(|file| file.lock()).collect();
        match adopted {
            Some(adopted) => change.tx.finish_intent(adopted, operations),
            None => operations.into_iter().for_each(|operation| change.tx.defer(operation)),
        }
        let mut locked: Vec<&mut dyn Loggable> = locked.iter_mut().map(|file| file as _).collect();
        change.commit(&mut locked)
    }

    /// Frees what a crash left of copy-on-write staging; how many blocks.
    pub(crate) fn free_staging(&self) -> Result<u64> {
        let begin = || self.table.shared().begin(self.reservations.intent);
        Ok(self.groups.free_staging(begin)?)
    }

    fn operations(&self, intent: &Intent) -> Result<Vec<Box<dyn DeferredOperation>>> {
        let groups = &self.groups;
        let shared = self.table.shared();
        let operations: std::result::Result<Vec<_>, _> = match &intent.body {
            IntentOperation::Free(extents) => {
                extents.iter().map(|extent| groups.recovered_free(extent.start, extent.blocks)).collect()
            }
            IntentOperation::Rmap(mappings) => {
                mappings.iter().map(|mapping| groups.recovered_rmap(mapping)).collect()
            }
            IntentOperation::Refcount(counts) => {
                counts.iter().map(|count| groups.recovered_refcount(count)).collect()
            }
            IntentOperation::Bmap(maps) => {
                maps.iter().map(|map| inode::fork::deferred::recovered(shared, map)).collect()
            }
            IntentOperation::Exchange(exchange) => {
                inode::exchange::recovered(shared, exchange).map(|one| vec![one])
            }
            IntentOperation::Attr(_) => Ok(Vec::new()),
        };
        Ok(operations?)
    }

    /// The files whose maps an intent changes, each once, in the order in which they are locked.
    fn files(&self, intent: &Intent) -> Result<Vec<InodeRef>> {
        let mut numbers = intent.files_changed();
        numbers.sort_unstable();
        numbers.dedup();
        let files: Vec<InodeRef> = numbers.into_iter().map(|ino| self.file(ino)).collect::<Result<_>>()?;
        if let IntentOperation::Exchange(exchange) = &intent.body {
            for (ino, generation) in exchange.files.into_iter().zip(exchange.generations) {
                let found = files.iter().find(|file| file.ino() == ino);
                let found = found.map(|file| file.read().core().generation.get());
                if found != Some(generation) {
                    let found = found.unwrap_or_default();
                    return Err(damaged(ino, Damage::new("log intent", "generation", generation, found)));
                }
            }
        }
        Ok(files)
    }

    fn file(&self, ino: Ino) -> Result<InodeRef> {
        self.inode(ino).map_err(|error| match error.errno() {
            errno::ENOENT => {
                damaged(ino, Damage::new("log intent", "inode", "one that is in use", "a free one"))
            }
            _ => error,
        })
    }
}

pub(crate) fn damaged(ino: Ino, damage: Damage) -> Error {
    EngineError::damaged(Place::ino(ino), damage).into()
}
