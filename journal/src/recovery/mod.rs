//! Recovery: what the journal promised is put in its place.
//!
//! The target is a device: a copy-on-write overlay, so that an image can be read as it will be after a mount, or the
//! volume itself. Recovery writes the same either way.
//!
//! | part | subject |
//! |---|---|
//! | [`recover`] | the two passes |
//! | [`replay`] | [`ReplayItem`], what a type of item does in each pass, and the [`ReplayRegistry`] of types |
//! | [`order`] | in which order the items of one transaction are replayed |
//! | [`lsn_check`] | when what lies on disk is newer than the log and stays |
//! | [`cancel`] | buffers that were freed: what was logged of them before is not replayed |
//! | [`buffers`] | the target's blocks in memory, written back together |
//! | `buffer`, `inode`, `owner`, `icreate`, `intents`, `quota` | the items, type by type |
//! | `split` | directory blocks in several pieces |
//! | [`report`] | what was done, what was not, and which files intents could still change |
//!
//! # The passes
//! The first pass only collects which buffers are cancelled. The second replays the complete transactions, in the order
//! of their commits and each in the order of [`order::TABLE`]. It stamps what it changes with the transaction's LSN.
//!
//! # What recovery does not do here
//! It finishes no intent, frees no unlinked inode and recounts nothing: that takes allocators. All of it is reported.
//! It does not touch the log either, so a second recovery finds the same log and ends in the same state.
//!
//! # Invariants
//! The log's own damage stops recovery before the first write, because [`Journal::open`] verified every record.
//! Memory is bounded by the active log: one transaction at a time, a few words for each buffer and inode it names, the
//! unfinished intents, and [`Options::memory_bytes`] of blocks.

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
pub use replay::{FirstPass, ReplayContext, ReplayFailure, ReplayItem, ReplayOutcome, ReplayRegistry};
pub use report::{RecoveryReport, ReplayCounts, ReplayProblem};

use crate::assemble::RecoveredTransaction;
use crate::error::LogError;
use crate::journal::Journal;

/// What to do with an item that cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// Stop there with [`LogError::Item`]: for the volume itself, which should then be looked at by hand.
    #[default]
    Stop,
    /// Note it in the report and go on with the next item: for a reader, who wants what can be had.
    Note,
}

/// How to recover.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to do with an item that cannot be replayed.
    pub on_damage: OnDamage,
    /// Blocks of the target are held in memory up to about so many bytes before they are written.
    pub memory_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { on_damage: OnDamage::default(), memory_bytes: 32 << 20 }
    }
}

/// Replays a journal into `target` and flushes it. A clean journal changes nothing.
///
/// `superblock` is the one that the journal was opened with. A log can change it (a volume that was grown): whoever
/// goes on reading the target must read it again, as [`RecoveryReport::superblock_replayed`] tells.
///
/// # Errors
/// [`LogError::Device`]; [`LogError::Record`] and [`LogError::Transaction`] for a log that is malformed;
/// [`LogError::Item`] under [`OnDamage::Stop`]. The target then holds some of the changes: recovering it again, once
/// the cause is gone, is safe.
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
        // The second pass meets the same item, and notes it.
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
