//! A subject and the model side by side: each operation is done by both, and their answers are compared.
//!
//! | part | subject |
//! |---|---|
//! | [`Session`] | one thread's work below one directory |
//! | [`Step`], [`History`] | what was done, in order, and the fingerprint of the tree after each |
//! | [`Ticks`] | the order of calls across threads |

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use base::time::Time;

use crate::clock;
use crate::facts::Facts;
use crate::operation::{HOME, How, Id, Operation};
use crate::refusal::{EIO, ENOSPC};
use crate::seen::Seen;
use crate::subject::{Answer, Failure, Subject};
use crate::tree::{Outcome, Tree};

/// Counts the beginnings and ends of all threads' operations, so that it is known which came before which.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// A moment: larger than every one told before.
    pub fn now(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// One operation that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub operation: Operation,
    /// The time that it stamped.
    pub now: Time,
    /// The number of the file that it made, else 0.
    pub number: u64,
    /// Whether it changed anything: it was neither refused nor failed.
    pub done: bool,
    /// The tree's fingerprint after it.
    pub print: u64,
    /// Before it began.
    pub began: u64,
    /// After it ended.
    pub ended: u64,
}

/// All that one thread did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The directory as it was before.
    pub facts: Facts,
    /// Its number.
    pub number: u64,
    /// Its fingerprint, when it was empty.
    pub first: u64,
    /// The operations.
    pub steps: Vec<Step>,
}

impl History {
    /// The tree after the first `length` steps, made anew.
    pub fn tree(&self, length: usize) -> Tree {
        let mut tree = Tree::new(self.facts.clone(), self.number);
        for step in self.steps.iter().take(length).filter(|step| step.done) {
            // It was allowed when it was recorded.
            let _ = tree.perform(&step.operation, step.now, step.number);
        }
        tree
    }

    /// The lengths of all prefixes whose tree has this fingerprint, at or above `least`, ascending.
    pub fn prefixes(&self, print: u64, least: usize) -> impl Iterator<Item = usize> {
        (least..=self.steps.len()).filter(move |length| self.print_after(*length) == Some(print))
    }

    /// The fingerprint after `length` steps.
    pub fn print_after(&self, length: usize) -> Option<u64> {
        match length.checked_sub(1) {
            None => Some(self.first),
            Some(last) => self.steps.get(last).map(|step| step.print),
        }
    }

    /// The tree after all steps, the last one too, which failed though there was no reason to refuse it: a device that
    /// fails leaves open whether a change is in the log. What it made has the number that is seen.
    pub fn tree_though_failed(&self, seen: &Seen) -> Option<Tree> {
        let (last, before) = self.steps.split_last().filter(|(last, _)| !last.done)?;
        let mut tree = self.tree(before.len());
        tree.judge(&last.operation).ok()?;
        let made = match &last.operation {
            Operation::Create { dir, name, .. } => Some((*dir, name)),
            Operation::Rename { from, name, how: How::Whiteout(_), .. } => Some((*from, name)),
            _ => None,
        };
        let number =
            made.and_then(|(dir, name)| seen.files.get(&tree.node(dir)?.number)?.entries.get(name).copied());
        tree.perform(&last.operation, last.now, number.unwrap_or(0)).ok()?;
        Some(tree)
    }

    /// The prefix at or above `least` that differs least from what is seen, and how, for a message.
    pub fn nearest(&self, seen: &Seen, least: usize) -> (usize, Vec<String>) {
        let mut tree = self.tree(least);
        let mut best = (least, seen.differences(&Seen::of_tree(&tree)));
        for (at, step) in self.steps.iter().enumerate().skip(least).filter(|(_, step)| step.done) {
            let _ = tree.perform(&step.operation, step.now, step.number);
            let differences = seen.differences(&Seen::of_tree(&tree));
            if differences.len() < best.1.len() {
                best = (at + 1, differences);
            }
        }
        best
    }
}

/// Which failures a subject may give although the model knows no reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// The volume may be full.
    pub no_space: bool,
    /// The device may fail, and the volume be shut down by it.
    pub io_errors: bool,
}

/// How a step ended that was no mismatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// Both did it, or both refused.
    Agreed,
    /// The volume is full; nothing was done.
    NoSpace,
    /// The device failed: whether it was done is not known.
    Broken(Failure),
}

/// A subject and the model, in step.
pub struct Session<'s, S> {
    subject: &'s S,
    ticks: &'s Ticks,
    tree: Tree,
    history: History,
    tolerance: Tolerance,
}

impl<'s, S: Subject> Session<'s, S> {
    /// Begins below an empty directory of the subject, whose number is `home`.
    ///
    /// # Errors
    /// What the subject says when it is asked about the directory.
    pub fn new(subject: &'s S, ticks: &'s Ticks, home: u64, times: bool) -> Answer<Self> {
        let mut facts = subject.stat(home)?;
        if !times {
            facts.times = None;
        }
        let tree = Tree::new(facts.clone(), home);
        let history = History { facts, number: home, first: tree.fingerprint(), steps: Vec::new() };
        Ok(Self { subject, ticks, tree, history, tolerance: Tolerance::default() })
    }

    /// The same with failures that are no mismatch.
    pub fn tolerating(self, tolerance: Tolerance) -> Self {
        Self { tolerance, ..self }
    }

    /// The tree as it must be now.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What was done so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Ends.
    pub fn into_history(self) -> History {
        self.history
    }

    /// Does one operation on both.
    ///
    /// # Errors
    /// In words, where subject and model answer differently.
    pub fn step(&mut self, operation: &Operation, now: Time) -> Result<Stepped, String> {
        let expected = self.tree.judge(operation);
        clock::set(now);
        let began = self.ticks.now();
        let answer = self.ask(operation);
        let ended = self.ticks.now();
        let (number, told) = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let ended_as = match expected {
                    Err(refusal) if refusal.errno() == failure.errno => Stepped::Agreed,
                    _ if failure.errno == ENOSPC && self.tolerance.no_space => Stepped::NoSpace,
                    _ if failure.errno == EIO && self.tolerance.io_errors => Stepped::Broken(failure),
                    Ok(()) => return Err(format!("{operation}: should succeed, but gave {failure}")),
                    Err(refusal) => {
                        return Err(format!("{operation}: should give {refusal:?}, but gave {failure}"));
                    }
                };
                self.record(operation, now, (0, false), (began, ended));
                return Ok(ended_as);
            }
        };
        let outcome = self.tree.perform(operation, now, number);
        let outcome =
            outcome.map_err(|refusal| format!("{operation}: should give {refusal:?}, but succeeded"))?;
        self.record(operation, now, (number, true), (began, ended));
        self.compare(operation, &outcome, &told)?;
        Ok(Stepped::Agreed)
    }

    fn record(
        &mut self,
        operation: &Operation,
        now: Time,
        (number, done): (u64, bool),
        (began, ended): (u64, u64),
    ) {
        let print = self.tree.fingerprint();
        let operation = operation.clone();
        self.history.steps.push(Step { operation, now, number, done, print, began, ended });
    }

    /// Asks the subject. Gives the number of a file that was made, and what else it told.
    fn ask(&self, operation: &Operation) -> Answer<(u64, Told)> {
        let subject = self.subject;
        // A file that the model does not know has no number: the subject never sees it.
        let number = |id: Id| {
            let unknown = || Failure { errno: 2, message: "the model knows no such file".into() };
            self.tree.node(id).map(|node| node.number).ok_or_else(unknown)
        };
        let done = |()| (0, Told::Nothing);
        match operation {
            Operation::Create { dir, name, new, .. } => {
                subject.create(number(*dir)?, name, new).map(|number| (number, Told::Nothing))
            }
            Operation::Anonymous { dir, new, .. } => {
                subject.anonymous(number(*dir)?, new).map(|number| (number, Told::Nothing))
            }
            Operation::Link { id, dir, name } => subject.link(number(*id)?, number(*dir)?, name).map(done),
            Operation::Unlink { dir, name } => subject.unlink(number(*dir)?, name).map(done),
            Operation::Rmdir { dir, name } => subject.rmdir(number(*dir)?, name).map(done),
            Operation::Rename { from, name, to, to_name, how } => {
                let (from, to) = ((number(*from)?, &**name), (number(*to)?, &**to_name));
                subject.rename(from, to, *how)?;
                // A rename tells no number: that of the whiteout is looked up.
                match how {
                    How::Whiteout(_) => Ok((subject.lookup(from.0, name).unwrap_or(0), Told::Nothing)),
                    _ => Ok((0, Told::Nothing)),
                }
            }
            Operation::Hold { id } => subject.hold(number(*id)?).map(done),
            Operation::Release { id } => subject.release(number(*id)?).map(done),
            Operation::Set { id, change } => subject.set(number(*id)?, change).map(done),
            Operation::Lookup { dir, name } => {
                subject.lookup(number(*dir)?, name).map(|found| (0, Told::Number(found)))
            }
            Operation::Stat { id } => {
                subject.stat(number(*id)?).map(|facts| (0, Told::Facts(Box::new(facts))))
            }
            Operation::List { dir } => subject.list(number(*dir)?).map(|entries| (0, Told::Entries(entries))),
            Operation::Sync => subject.sync().map(done),
        }
    }

    fn compare(&self, operation: &Operation, outcome: &Outcome, told: &Told) -> Result<(), String> {
        let number = |id: Id| self.tree.node(id).map_or(0, |node| node.number);
        let wrong = match (outcome, told) {
            (Outcome::File(id), Told::Number(found)) if number(*id) != *found => {
                format!("found {found}, expected {}", number(*id))
            }
            (Outcome::Facts(expected), Told::Facts(found)) => {
                let mut found = (**found).clone();
                found.times = found.times.filter(|_| expected.times.is_some());
                match found == *expected {
                    true => return Ok(()),
                    false => format!("told {found:?}, expected {expected:?}"),
                }
            }
            (Outcome::Entries(expected), Told::Entries(found)) => {
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

    /// Everything below the session's directory, as the subject tells it call by call, against the model.
    ///
    /// # Errors
    /// In words, what differs.
    pub fn compare_all(&self) -> Result<(), String> {
        let home = self.tree.node(HOME).map_or(0, |node| node.number);
        let seen = Seen::of_subject(self.subject, home, self.history.facts.times.is_some())?;
        let differences = seen.differences(&Seen::of_tree(&self.tree));
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    }
}

/// What a subject told beside success.
enum Told {
    Nothing,
    Number(u64),
    Facts(Box<Facts>),
    Entries(std::collections::BTreeMap<Vec<u8>, u64>),
}
