//! Recovery: replaying the log.
//!
//! The target is a device: a copy-on-write overlay, to read an image as it is after a mount, or the volume itself.
//! Recovery writes the same to either.
//!
//! | part | subject |
//! |---|---|
//! | [`recover`] | the two passes |
//! | [`replay`] | [`ReplayItem`], what an item type does in each pass, and the [`ReplayRegistry`] of types |
//! | [`order`] | the replay order of the items of one transaction |
//! | [`lsn_check`] | when metadata on disk is newer than the log and stays |
//! | [`cancel`] | freed buffers, whose earlier changes are not replayed |
//! | [`buffers`] | the target's blocks in memory, written back together |
//! | `buffer`, `inode`, `owner`, `icreate`, `intents`, `quota` | the item types |
//! | `split` | directory blocks in several extents |
//! | [`report`] | what was done, what was not, and which files intents could still change |
//!
//! # The passes
//! The first pass only collects which buffers are cancelled. The second replays the complete transactions, in the order
//! of their commits and each in the order of [`order::TABLE`]. Changed blocks get the transaction's LSN.
//!
//! # What recovery leaves
//! It finishes no intent, frees no unlinked inode and recomputes no counter: that needs allocators. All of it is
//! reported. It does not change the log, so a second recovery finds the same log and ends in the same state.
//!
//! # Invariants
//! Damage of the log stops recovery before the first write, because [`Journal::open`] verified every record. Memory is
//! bounded by the active log: one transaction at a time, a few words for each of its buffers and inodes, the unfinished
//! intents, and [`Options::memory_bytes`] of blocks.

pub mod buffers;
pub mod cancel;
pub mod lsn_check;
pub mod order;
pub mod replay;
pub mod report;

mod buffer;
mod icreate;
mod inode;
mod intents;
mod owner;
mod quota;
mod split;

use block::Device;
use format::superblock::Superblock;

pub use intents::{AttrChange, Intent, IntentOperation};
pub use replay::{
    FirstPass, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome, ReplayRegistry, ReplayResult,
};
pub use report::{RecoveryReport, ReplayCounts, ReplayProblem};

use crate::assemble::RecoveredTransaction;
use crate::error::LogError;
use crate::journal::Journal;

/// What to do with an item that cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// Stop with [`LogError::Item`]: for the volume itself, which must then be examined.
    #[default]
    Stop,
    /// Record it in the report and continue: for a reader, which shows what is readable.
    Note,
}

/// Recovery options.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to do with an item that cannot be replayed.
    pub on_damage: OnDamage,
    /// Approximate limit of the target's blocks in memory, in bytes; beyond it they are written.
    pub memory_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { on_damage: OnDamage::default(), memory_bytes: 32 << 20 }
    }
}

/// Replays a journal into `target` and flushes it. A clean journal changes nothing.
///
/// `superblock` is the one with which the journal was opened. The log can change it if the volume was grown: then
/// [`RecoveryReport::superblock_replayed`] is set, and the caller must read it again.
///
/// # Errors
/// [`LogError::Device`]; [`LogError::Record`] and [`LogError::Transaction`] for a malformed log; [`LogError::Item`]
/// with [`OnDamage::Stop`]. The target then contains some of the changes. It is safe to recover it again.
pub fn recover(
    journal: &Journal<'_>,
    superblock: &Superblock,
    target: &dyn Device,
    registry: &ReplayRegistry,
    options: &Options,
) -> Result<RecoveryReport, LogError> {
    let mut first = FirstPass::default();
    for transaction in journal.transactions() {
        first_pass(&transaction?, registry, options, &mut first)?;
    }
    let mut context = ReplayContext::new(superblock.geometry.clone(), journal.head(), first, target, options);
    let mut transactions = journal.transactions();
    for transaction in &mut transactions {
        second_pass(&transaction?, registry, options, &mut context)?;
    }
    context.report.incomplete_transactions = transactions.incomplete();
    split::seal(&mut context).or_else(|failure| match failure {
        ReplayFailure::Device(error) => Err(LogError::Device(error)),
        ReplayFailure::Damage(..) => Ok(()), // reported as unsealed
    })?;
    context.buffers.write_back()?;
    if context.buffers.has_written() {
        target.flush()?;
    }
    Ok(context.into_report())
}

fn first_pass(
    transaction: &RecoveredTransaction,
    registry: &ReplayRegistry,
    options: &Options,
    state: &mut FirstPass,
) -> Result<(), LogError> {
    for item in transaction.items() {
        let Some(replay) = registry.get(item.kind) else { continue };
        let noted = replay.first_pass(&item, state);
        // The second pass meets the same item, and records it.
        if let (Err(failure), OnDamage::Stop) = (noted, options.on_damage) {
            return Err(failure.into_error(transaction.lsn, item.kind));
        }
    }
    Ok(())
}

fn second_pass(
    transaction: &RecoveredTransaction,
    registry: &ReplayRegistry,
    options: &Options,
    context: &mut ReplayContext<'_>,
) -> Result<(), LogError> {
    context.lsn = transaction.lsn;
    context.report.transactions += 1;
    let mut items: Vec<_> = transaction
        .items()
        .map(|item| {
            (registry.get(item.kind).map_or(order::ReplayOrder::Items, |replay| replay.order(&item)), item)
        })
        .collect();
    items.sort_by_key(|(place, _)| *place); // stable: the log's order within each place
    for (_, item) in items {
        let outcome = match registry.get(item.kind) {
            Some(replay) => replay.second_pass(&item, context),
            None => Ok(ReplayOutcome::Unsupported),
        };
        match outcome {
            Ok(outcome) => context.report.tally(item.kind, outcome),
            Err(failure) => {
                context.report.tally(item.kind, ReplayOutcome::Failed);
                match (failure, options.on_damage) {
                    (ReplayFailure::Damage(place, damage), OnDamage::Note) => {
                        context.report.note(ReplayProblem {
                            lsn: transaction.lsn,
                            kind: item.kind,
                            place,
                            damage,
                        });
                    }
                    (failure, _) => return Err(failure.into_error(transaction.lsn, item.kind)),
                }
            }
        }
    }
    Ok(())
}
