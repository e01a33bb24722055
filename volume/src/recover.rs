//! Finishing recovered intents: intents in the log without a done item.
//!
//! The log's tail stays at the oldest of them until all are done; after a power cut the next recovery finds those that
//! are left. For readers, in memory, each intent is logged again, and nothing pins the tail.

use base::{Ino, Lsn, errno};
use error::Error as EngineError;
use format::damage::{Damage, Place};
use inode::{InodeRef, LockedInode};
use journal::engine::RecoveredIntent;
use journal::engine::{DeferredOperation, Loggable};
use journal::recovery::{Intent, IntentOperation};

use crate::{Error, Result, Volume};

/// An intent without a done item, whose record is kept in the log.
pub(crate) struct UnfinishedIntent {
    intent: Intent,
    adopted: RecoveredIntent,
}

/// LSNs of the intents' records, which pin the tail.
pub(crate) fn intent_lsns(intents: &[Intent]) -> impl Iterator<Item = Lsn> {
    intents.iter().map(|intent| intent.lsn)
}

impl Volume {
    /// Keeps the intents' records in the log. To be called before the first transaction.
    pub(crate) fn adopt(log: &journal::engine::Log, intents: &[Intent]) -> Vec<UnfinishedIntent> {
        let adopt = |intent: &Intent| UnfinishedIntent {
            intent: intent.clone(),
            adopted: log.add_recovered_intent(intent.lsn, intent.id),
        };
        intents.iter().map(adopt).collect()
    }

    /// Finishes intents in log order.
    pub(crate) fn finish_intents(&self, intents: Vec<UnfinishedIntent>) -> Result<()> {
        let mut intents = intents.into_iter();
        intents.try_for_each(|UnfinishedIntent { intent, adopted }| self.finish(&intent, Some(adopted)))?;
        self.log.intents_finished();
        Ok(())
    }

    /// Finishes one intent. A new intent is logged if the record of the old one is not kept.
    pub(crate) fn finish(&self, intent: &Intent, adopted: Option<RecoveredIntent>) -> Result<()> {
        if let IntentOperation::Attr(attribute) = &intent.body {
            let file = self.intent_file(attribute.ino)?;
            return self.finish_attribute(&file, attribute, adopted);
        }
        let deferred = self.deferred_operations(intent)?;
        let files = self.intent_files(intent)?;
        let mut operation = self.begin(self.reservations.intent)?;
        let mut locked: Vec<LockedInode> = files.iter().map(|file| file.lock()).collect();
        match adopted {
            Some(adopted) => operation.tx.finish_intent(adopted, deferred),
            None => deferred.into_iter().for_each(|deferred| operation.tx.defer(deferred)),
        }
        let mut locked: Vec<&mut dyn Loggable> = locked.iter_mut().map(|file| file as _).collect();
        operation.commit(&mut locked)
    }

    /// Frees the copy-on-write staging extents that a crash left. Returns the number of blocks.
    pub(crate) fn free_staging(&self) -> Result<u64> {
        let begin = || self.inode_cache.shared().begin(self.reservations.intent);
        Ok(self.groups.free_staging(begin)?)
    }

    fn deferred_operations(&self, intent: &Intent) -> Result<Vec<Box<dyn DeferredOperation>>> {
        let groups = &self.groups;
        let shared = self.inode_cache.shared();
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

    /// The files whose extent maps an intent changes, each once, in lock order.
    fn intent_files(&self, intent: &Intent) -> Result<Vec<InodeRef>> {
        let mut numbers = intent.files_changed();
        numbers.sort_unstable();
        numbers.dedup();
        let files: Vec<InodeRef> =
            numbers.into_iter().map(|ino| self.intent_file(ino)).collect::<Result<_>>()?;
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

    fn intent_file(&self, ino: Ino) -> Result<InodeRef> {
        self.inode_at(ino).map_err(|error| match error.errno() {
            errno::ENOENT => {
                damaged(ino, Damage::new("log intent", "inode", "one that is in use", "a free one"))
            }
            _ => error,
        })
    }
}

/// Error for a damaged inode.
pub(crate) fn damaged(ino: Ino, damage: Damage) -> Error {
    EngineError::damaged(Place::ino(ino), damage).into()
}
