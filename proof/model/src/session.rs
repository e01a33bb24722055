//! Runs each operation on a subject and on the model, and compares their answers.
//!
//! | part | subject |
//! |---|---|
//! | [`Session`] | one thread's work below one directory |
//! | [`HistoryEntry`], [`History`] | operations in order, each with the tree's fingerprint after it |
//! | [`Ticks`] | the order of calls across threads |

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::time::Time;

use crate::clock;
use crate::observed::ObservedTree;
use crate::operation::{HOME, Id, Operation, RenameMode};
use crate::refusal::{EIO, ENOSPC};
use crate::stat::Stat;
use crate::subject::{Answer, Failure, Subject};
use crate::tree::{Outcome, Tree};

/// A logical clock shared by all threads: orders the starts and ends of their operations.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// Returns a tick larger than all previous ones.
    pub fn now(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// One operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The operation.
    pub operation: Operation,
    /// Time that it stamped.
    pub now: Time,
    /// Inode number of the file that it created, or 0.
    pub number: u64,
    /// False if it was refused or failed, and changed nothing.
    pub succeeded: bool,
    /// Fingerprint of the tree after it.
    pub fingerprint: u64,
    /// Tick before it began.
    pub began: u64,
    /// Tick after it ended.
    pub ended: u64,
}

/// All operations of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// State of the home directory before the first operation.
    pub stat: Stat,
    /// Inode number of the home directory.
    pub number: u64,
    /// Fingerprint of the empty home directory.
    pub first: u64,
    /// The operations, in order.
    pub entries: Vec<HistoryEntry>,
}

impl History {
    /// Builds the tree after the first `length` operations.
    pub fn tree(&self, length: usize) -> Tree {
        let mut tree = Tree::new(self.stat.clone(), self.number);
        for step in self.entries.iter().take(length).filter(|step| step.succeeded) {
            // The operation was permitted when it was recorded.
            let _ = tree.perform(&step.operation, step.now, step.number);
        }
        tree
    }

    /// Returns the lengths, at least `min`, of all prefixes whose tree has this fingerprint, in ascending order.
    pub fn prefixes(&self, fingerprint: u64, min: usize) -> impl Iterator<Item = usize> {
        (min..=self.entries.len()).filter(move |length| self.fingerprint_after(*length) == Some(fingerprint))
    }

    /// Returns the fingerprint after `length` operations.
    pub fn fingerprint_after(&self, length: usize) -> Option<u64> {
        match length.checked_sub(1) {
            None => Some(self.first),
            Some(last) => self.entries.get(last).map(|step| step.fingerprint),
        }
    }

    /// Builds the tree after all operations, including a last one that failed without a refusal: when the device fails,
    /// the change may be in the log or not. A file that it created has the observed inode number.
    pub fn tree_with_failed_operation(&self, observed: &ObservedTree) -> Option<Tree> {
        let (last, before) = self.entries.split_last().filter(|(last, _)| !last.succeeded)?;
        let mut tree = self.tree(before.len());
        tree.check(&last.operation).ok()?;
        let made = match &last.operation {
            Operation::Create { dir, name, .. } => Some((*dir, name)),
            Operation::Rename { from, name, mode: RenameMode::Whiteout(_), .. } => Some((*from, name)),
            _ => None,
        };
        let number = made
            .and_then(|(dir, name)| observed.files.get(&tree.node(dir)?.number)?.entries.get(name).copied());
        tree.perform(&last.operation, last.now, number.unwrap_or(0)).ok()?;
        Some(tree)
    }

    /// Returns the prefix, of at least `min` operations, with the fewest differences, and these, for a message.
    pub fn nearest(&self, observed: &ObservedTree, min: usize) -> (usize, Vec<String>) {
        let mut tree = self.tree(min);
        let mut best = (min, observed.differences(&ObservedTree::of_tree(&tree)));
        for (at, step) in self.entries.iter().enumerate().skip(min).filter(|(_, step)| step.succeeded) {
            let _ = tree.perform(&step.operation, step.now, step.number);
            let differences = observed.differences(&ObservedTree::of_tree(&tree));
            if differences.len() < best.1.len() {
                best = (at + 1, differences);
            }
        }
        best
    }
}

/// Failures of a subject that are no mismatch although the model does not expect them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// The volume may be full.
    pub no_space: bool,
    /// The device may fail, and the volume may be shut down.
    pub io_errors: bool,
}

impl Tolerance {
    /// Returns true for a failure that is tolerated.
    pub(crate) fn tolerates(self, failure: &Failure) -> bool {
        (self.no_space && failure.errno == ENOSPC) || (self.io_errors && failure.errno == EIO)
    }
}

/// Result of an operation without a mismatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Both succeeded, or both refused.
    Agreed,
    /// The volume is full; nothing was changed.
    NoSpace,
    /// The device failed: the operation may have taken effect or not.
    IoError(Failure),
}

/// Runs operations on a subject and on the model.
pub struct Session<'s, S> {
    subject: &'s S,
    ticks: &'s Ticks,
    tree: Tree,
    history: History,
    tolerance: Tolerance,
}

impl<'s, S: Subject> Session<'s, S> {
    /// Starts below an empty directory of the subject with the inode number `home`.
    ///
    /// # Errors
    /// The subject cannot `stat` the directory.
    pub fn new(subject: &'s S, ticks: &'s Ticks, home: u64, times: bool) -> Answer<Self> {
        let mut stat = subject.stat(home)?;
        if !times {
            stat.times = None;
        }
        let tree = Tree::new(stat.clone(), home);
        let history = History { stat, number: home, first: tree.fingerprint(), entries: Vec::new() };
        Ok(Self { subject, ticks, tree, history, tolerance: Tolerance::default() })
    }

    /// Sets the failures that are tolerated.
    pub fn tolerating(self, tolerance: Tolerance) -> Self {
        Self { tolerance, ..self }
    }

    /// Returns the expected tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the history so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Ends the session and returns its history.
    pub fn into_history(self) -> History {
        self.history
    }

    /// Runs one operation on both.
    ///
    /// # Errors
    /// Subject and model answer differently.
    pub fn step(&mut self, operation: &Operation, now: Time) -> Result<StepOutcome, String> {
        let expected = self.tree.check(operation);
        clock::set(now);
        let began = self.ticks.now();
        let answer = self.call_subject(operation);
        let ended = self.ticks.now();
        let (number, reply) = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let outcome = match expected {
                    Err(refusal) if refusal.errno() == failure.errno => StepOutcome::Agreed,
                    _ if failure.errno == ENOSPC && self.tolerance.no_space => StepOutcome::NoSpace,
                    _ if failure.errno == EIO && self.tolerance.io_errors => StepOutcome::IoError(failure),
                    Ok(()) => return Err(format!("{operation}: should succeed, but failed: {failure}")),
                    Err(refusal) => {
                        return Err(format!("{operation}: should give {refusal:?}, but failed: {failure}"));
                    }
                };
                self.record(operation, now, 0, false, began, ended);
                return Ok(outcome);
            }
        };
        let outcome = self.tree.perform(operation, now, number);
        let outcome =
            outcome.map_err(|refusal| format!("{operation}: should give {refusal:?}, but succeeded"))?;
        self.record(operation, now, number, true, began, ended);
        self.compare(operation, &outcome, &reply)?;
        Ok(StepOutcome::Agreed)
    }

    fn record(
        &mut self,
        operation: &Operation,
        now: Time,
        number: u64,
        succeeded: bool,
        began: u64,
        ended: u64,
    ) {
        let fingerprint = self.tree.fingerprint();
        let operation = operation.clone();
        self.history.entries.push(HistoryEntry {
            operation,
            now,
            number,
            succeeded,
            fingerprint,
            began,
            ended,
        });
    }

    /// Runs an operation on the subject. Returns the inode number of a file that was created, and the result.
    fn call_subject(&self, operation: &Operation) -> Answer<(u64, Reply)> {
        let subject = self.subject;
        // The subject is not called for a file that the model does not know: it has no inode number.
        let number = |id: Id| {
            let unknown = || Failure { errno: 2, message: "the model knows no such file".into() };
            self.tree.node(id).map(|node| node.number).ok_or_else(unknown)
        };
        let succeeded = |()| (0, Reply::Nothing);
        match operation {
            Operation::Create { dir, name, new, .. } => {
                subject.create(number(*dir)?, name, new).map(|number| (number, Reply::Nothing))
            }
            Operation::Anonymous { dir, new, .. } => {
                subject.anonymous(number(*dir)?, new).map(|number| (number, Reply::Nothing))
            }
            Operation::Link { id, dir, name } => {
                subject.link(number(*id)?, number(*dir)?, name).map(succeeded)
            }
            Operation::Unlink { dir, name } => subject.unlink(number(*dir)?, name).map(succeeded),
            Operation::Rmdir { dir, name } => subject.rmdir(number(*dir)?, name).map(succeeded),
            Operation::Rename { from, name, to, to_name, mode } => {
                let (from, to) = ((number(*from)?, &**name), (number(*to)?, &**to_name));
                subject.rename(from, to, *mode)?;
                // A rename returns no inode number: look the whiteout up. If the volume was shut down meanwhile,
                // the rename counts as failed: it may have happened.
                let whiteout = matches!(mode, RenameMode::Whiteout(_)).then(|| subject.lookup(from.0, name));
                Ok((whiteout.transpose()?.unwrap_or(0), Reply::Nothing))
            }
            Operation::Open { id } => subject.open(number(*id)?).map(succeeded),
            Operation::Close { id } => subject.close(number(*id)?).map(succeeded),
            Operation::Set { id, change } => subject.set(number(*id)?, change).map(succeeded),
            Operation::Lookup { dir, name } => {
                subject.lookup(number(*dir)?, name).map(|found| (0, Reply::Number(found)))
            }
            Operation::Stat { id } => subject.stat(number(*id)?).map(|stat| (0, Reply::Stat(Box::new(stat)))),
            Operation::List { dir } => {
                subject.list(number(*dir)?).map(|entries| (0, Reply::Entries(entries)))
            }
            Operation::Sync => subject.sync().map(succeeded),
        }
    }

    fn compare(&self, operation: &Operation, outcome: &Outcome, reply: &Reply) -> Result<(), String> {
        let number = |id: Id| self.tree.node(id).map_or(0, |node| node.number);
        let wrong = match (outcome, reply) {
            (Outcome::File(id), Reply::Number(found)) if number(*id) != *found => {
                format!("found {found}, expected {}", number(*id))
            }
            (Outcome::Stat(expected), Reply::Stat(found)) => {
                let mut found = (**found).clone();
                found.times = found.times.filter(|_| expected.times.is_some());
                match found == *expected {
                    true => return Ok(()),
                    false => format!("returned {found:?}, expected {expected:?}"),
                }
            }
            (Outcome::Entries(expected), Reply::Entries(found)) => {
                let expected = expected.iter().map(|(name, id)| (name.clone(), number(*id))).collect();
                match *found == expected {
                    true => return Ok(()),
                    false => format!("listed {found:?}, expected {expected:?}"),
                }
            }
            _ => return Ok(()),
        };
        Err(format!("{operation}: {wrong}"))
    }

    /// Compares everything below the session's directory, read through the subject's calls, with the model.
    ///
    /// # Errors
    /// The differences.
    pub fn compare_all(&self) -> Result<(), String> {
        let home = self.tree.node(HOME).map_or(0, |node| node.number);
        let observed = ObservedTree::of_subject(self.subject, home, self.history.stat.times.is_some())?;
        let differences = observed.differences(&ObservedTree::of_tree(&self.tree));
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    }
}

/// Result of an operation on the subject.
enum Reply {
    Nothing,
    Number(u64),
    Stat(Box<Stat>),
    Entries(std::collections::BTreeMap<Vec<u8>, u64>),
}
