//! The journal's parts as lists of named values, for whoever shows a log: its state, records, operations, transactions,
//! and what recovery did. Items have [`crate::item::describe`].

use std::fmt;

use base::Lsn;
use format::log::operation::{LogOperation, flags};
use format::log::record::RecordHeader;
use format::uuid::UuidText;

use crate::assemble::Transaction;
use crate::journal::{Dirty, State};
use crate::locate::Discarded;
use crate::recovery::{Report, Tally};
use crate::show::{Fields, Value};

/// A sequence number as people write it: cycle and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsnText(pub Lsn);

impl fmt::Display for LsnText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.cycle(), self.0.block())
    }
}

fn lsn(fields: Fields, name: &'static str, lsn: Lsn) -> Fields {
    fields.text(name, LsnText(lsn).to_string())
}

/// A record.
pub fn record(header: &RecordHeader) -> Fields {
    let fields = lsn(lsn(Fields::new(), "lsn", header.lsn), "tail_lsn", header.tail_lsn);
    fields
        .number("bytes", header.len)
        .number("header_blocks", header.header_blocks)
        .number("operations", header.operations)
        .number("buffer_bytes", header.size)
        .hex("crc", header.crc)
        .text("uuid", UuidText(header.uuid).to_string())
}

/// An operation of a record.
pub fn operation(operation: &LogOperation<'_>) -> Fields {
    Fields::new()
        .number("offset", operation.offset)
        .hex("tid", operation.tid)
        .number("bytes", operation.data.len() as u64)
        .flags("flags", operation.flags, flags::ALL)
}

/// A complete transaction.
pub fn transaction(transaction: &Transaction) -> Fields {
    let fields = lsn(Fields::new(), "lsn", transaction.lsn);
    lsn(fields, "commit_lsn", transaction.commit_lsn)
        .hex("tid", transaction.tid)
        .number("items", transaction.items().len() as u64)
        .number("bytes", transaction.bytes() as u64)
}

/// What state a log is in.
pub fn state(state: &State) -> Fields {
    match state {
        State::Clean { head, discarded } => {
            let fields = Fields::new().text("state", "clean");
            with_discarded(lsn(fields, "head", *head), discarded.as_ref())
        }
        State::Dirty(dirty) => {
            let fields = lsn(Fields::new().text("state", "dirty"), "head", dirty.head);
            let fields = lsn(fields, "tail", dirty.tail)
                .number("blocks", dirty.blocks)
                .number("records", dirty.records)
                .number("operations", dirty.operations)
                .number("transactions", dirty.transactions);
            let fields = match dirty.overwritten_tail {
                Some(tail) => lsn(fields, "overwritten_tail", tail),
                None => fields,
            };
            with_discarded(fields, dirty.discarded.as_ref())
        }
    }
}

fn with_discarded(fields: Fields, discarded: Option<&Discarded>) -> Fields {
    let Some(discarded) = discarded else { return fields };
    let list = Fields::new()
        .number("block", discarded.block)
        .number("records", discarded.records)
        .text("why", discarded.damage.to_string());
    fields.with("discarded", Value::List(vec![list]))
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean { head, .. } => write!(f, "clean, head {}", LsnText(*head)),
            Self::Dirty(Dirty { head, tail, blocks, records, transactions, .. }) => write!(
                f,
                "dirty, {records} records with {transactions} transactions from {} to {} ({blocks} blocks)",
                LsnText(*tail),
                LsnText(*head)
            ),
        }
    }
}

/// What recovery did.
pub fn report(report: &Report) -> Fields {
    let items = report.items.iter().map(|(kind, tally)| {
        let Tally { replayed, newer, cancelled, quota, unsupported, failed } = *tally;
        let counts = [
            ("replayed", replayed),
            ("newer", newer),
            ("cancelled", cancelled),
            ("quota", quota),
            ("unsupported", unsupported),
            ("failed", failed),
        ];
        // Most are zero: what happened is what is said.
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts
            .fold(Fields::new().text("type", kind.name()), |fields, (name, count)| fields.number(name, count))
    });
    let files = report.files_concerned().into_iter().map(|ino| Fields::new().number("ino", ino.get()));
    let problems = report.problems.iter().map(|problem| Fields::new().text("problem", problem.to_string()));
    Fields::new()
        .number("transactions", report.transactions)
        .number("incomplete_transactions", report.incomplete_transactions as u64)
        .with("items", Value::List(items.collect()))
        .with("unfinished", Value::List(report.unfinished.iter().map(crate::item::describe_intent).collect()))
        .with("files_concerned", Value::List(files.collect()))
        .number("problems_total", report.problems_total)
        .with("problems", Value::List(problems.collect()))
}
