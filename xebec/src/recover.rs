//! What recovery leaves to be done: intents in the log that no done item answers.
//!
//! The log's tail stays at the oldest of them until all are answered; a power cut in between begins anew with those
//! that are left.

use base::Lsn;
use log::engine::Deferred;
use log::engine::defer::Adopted;
use log::recovery::{Body, Intent};

use crate::{Error, Result, Volume};

/// An unanswered intent, kept in the log.
pub(crate) struct Unanswered {
    intent: Intent,
    adopted: Adopted,
}

/// Refuses intents that this version cannot carry out, before anything is written.
pub(crate) fn expect_known(intents: &[Intent]) -> Result<()> {
    let unknown = intents
        .iter()
        .find(|intent| !matches!(intent.body, Body::Free(_) | Body::Rmap(_) | Body::Refcount(_)));
    match unknown {
        Some(intent) => Err(Error::Unwritable {
            why: format!(
                "the log holds an unfinished operation that this version cannot finish: {intent} (mount the volume \
                 with Linux once)"
            ),
        }),
        None => Ok(()),
    }
}

/// The places of the intents' records, which must stay.
pub(crate) fn places(intents: &[Intent]) -> impl Iterator<Item = Lsn> {
    intents.iter().map(|intent| intent.lsn)
}

impl Volume {
    /// Keeps the intents' records in the log. Before the first transaction.
    pub(crate) fn adopt(log: &log::engine::log::Log, intents: &[Intent]) -> Vec<Unanswered> {
        let adopt = |intent: &Intent| Unanswered {
            intent: intent.clone(),
            adopted: log.adopt(intent.lsn, intent.id),
        };
        intents.iter().map(adopt).collect()
    }

    /// Does what the intents ask for, in the order of the log.
    pub(crate) fn finish_intents(&self, intents: Vec<Unanswered>) -> Result<()> {
        for Unanswered { intent, adopted } in intents {
            let mut change = self.begin(self.reservations.intent)?;
            change.tx.resume(adopted, self.operations(&intent)?);
            change.commit(&mut [])?;
        }
        Ok(())
    }

    fn operations(&self, intent: &Intent) -> Result<Vec<Box<dyn Deferred>>> {
        let groups = &self.groups;
        let operations: std::result::Result<Vec<_>, _> = match &intent.body {
            Body::Free(extents) => {
                extents.iter().map(|extent| groups.recovered_free(extent.start, extent.blocks)).collect()
            }
            Body::Rmap(mappings) => mappings.iter().map(|mapping| groups.recovered_rmap(mapping)).collect(),
            Body::Refcount(counts) => counts.iter().map(|count| groups.recovered_refcount(count)).collect(),
            _ => Ok(Vec::new()),
        };
        Ok(operations?)
    }
}
