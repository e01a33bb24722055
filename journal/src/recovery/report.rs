//! The recovery report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::{Daddr, Ino, Lsn};
use format::damage::{Damage, Place};
use format::log::item::ItemType;

use super::intents::Intent;
use super::replay::{ReplayOutcome, ReplayTarget};

/// Number of problems that are kept; further ones are only counted.
const MAX_PROBLEMS: usize = 1000;

/// Number of items of one type by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Replayed.
    pub replayed: u64,
    /// Newer on disk.
    pub newer: u64,
    /// Buffer freed later.
    pub cancelled: u64,
    /// Quota: not replayed.
    pub quota: u64,
    /// Unsupported type.
    pub unsupported: u64,
    /// Damaged.
    pub failed: u64,
}

impl ReplayCounts {
    /// Number of all items.
    pub fn total(&self) -> u64 {
        self.replayed + self.newer + self.cancelled + self.quota + self.unsupported + self.failed
    }
}

/// An item that could not be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayProblem {
    /// LSN of its transaction.
    pub lsn: Lsn,
    /// Log item type.
    pub kind: ItemType,
    /// Location of the metadata.
    pub place: Place,
    /// The damage.
    pub damage: Damage,
}

impl fmt::Display for ReplayProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cycle, block) = (self.lsn.cycle(), self.lsn.block());
        write!(f, "log record {cycle}:{block}, {} of {}: {}", self.kind.words(), self.place, self.damage)
    }
}

/// What recovery did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Complete transactions, all replayed.
    pub transactions: u64,
    /// Transactions without a commit record, which are ignored.
    pub incomplete_transactions: usize,
    /// Outcomes of the items by type.
    pub items: BTreeMap<ItemType, ReplayCounts>,
    /// Intents without a done item, which Linux would finish at mount.
    pub unfinished: Vec<Intent>,
    /// The first superblock was replayed: it must be read again. Its counters of free space and inodes are outdated;
    /// Linux recomputes them from the AG headers when it mounts a volume after a crash.
    pub superblock_replayed: bool,
    /// Buffers and inodes whose checksum was wrong when they were first met: torn, or left from an earlier use of the
    /// block. Their LSN was ignored.
    pub not_believed: Vec<ReplayTarget>,
    /// Pieces of directory blocks in several extents whose other pieces were not found: the block's checksum, which
    /// covers all of them, is unchanged. Address and sectors.
    pub unsealed: BTreeSet<(Daddr, u16)>,
    /// Quotas that are switched off in the log: bits of `quota::OFF_FLAGS`.
    pub quotas_off: u32,
    /// Items that could not be replayed: the first thousand.
    pub problems: Vec<ReplayProblem>,
    /// Number of items that could not be replayed.
    pub problems_total: u64,
}

impl RecoveryReport {
    /// Counts an item.
    pub fn tally(&mut self, kind: ItemType, outcome: ReplayOutcome) {
        let tally = self.items.entry(kind).or_default();
        *match outcome {
            ReplayOutcome::Replayed => &mut tally.replayed,
            ReplayOutcome::Newer => &mut tally.newer,
            ReplayOutcome::Cancelled => &mut tally.cancelled,
            ReplayOutcome::Quota => &mut tally.quota,
            ReplayOutcome::Unsupported => &mut tally.unsupported,
            ReplayOutcome::Failed => &mut tally.failed,
        } += 1;
    }

    /// Records a problem.
    pub fn note(&mut self, problem: ReplayProblem) {
        self.problems_total += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Number of items of all types.
    pub fn items_total(&self) -> u64 {
        self.items.values().map(ReplayCounts::total).sum()
    }

    /// The files whose data or attributes the unfinished intents could change.
    pub fn files_concerned(&self) -> BTreeSet<Ino> {
        self.unfinished.iter().flat_map(Intent::files_changed).collect()
    }
}
