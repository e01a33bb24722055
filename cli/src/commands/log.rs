//! `xebec log`: shows the contents of the log, like `xfs_logprint -t`.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use journal::{
    Dirty, DiscardedRecords, Journal, LogFields, LogRecord, RecoveredTransaction, RecoveryReport, State,
    describe,
};
use serde::Serialize;
use serde_json::{Value, json};
use xebec::image::{OpenedImage, superblock};
use xebec::{Ino, Lsn};

use crate::args::Global;
use crate::json;
use crate::names;
use crate::open;
use crate::output::{Messages, Stdout};
use crate::urls::shown;

/// Arguments of `log`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Shows the active part of the log, from tail to head: complete transactions with their items in \
    commit order, and the intents that a mount would finish. A clean log has no active part. Log sequence numbers \
    are CYCLE:BLOCK, in 512-byte blocks.\n\n\
    Examples:\n  xebec log disk.xfs\n  xebec log --records disk.xfs\n  xebec log --json disk.xfs | jq \
    '.transactions[].items[].type'\n\n\
    Exit codes: 0 success; 1 the log cannot be read; 2 usage error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Show log records instead of transactions.
    #[arg(long)]
    records: bool,
    /// Show only head, tail and counts.
    #[arg(long, conflicts_with = "records")]
    summary: bool,
}

/// Runs `log`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let messages = Messages::new(global, shown(&arguments.image));
    let OpenedImage { device, log_device, .. } = open::device(&arguments.image, global)?;
    let superblock = superblock(&device)?;
    let journal =
        Journal::open(&superblock, &*device, log_device.as_deref()).context("cannot read the log")?;
    let report = match journal.state() {
        State::Clean { .. } => None,
        State::Dirty(_) => {
            // Unfinished intents are known only after the replay.
            Some(journal::replay_in_memory(&journal, &superblock, device.clone())?.1)
        }
    };
    let mut writer = LogWriter {
        out: Stdout::buffered(),
        json: global.json,
        verbose: global.verbose,
        messages: &messages,
        separator: b"",
    };
    let array = if arguments.records { "records" } else { "transactions" };
    writer.head(&journal, array)?;
    if arguments.records {
        for record in journal.records() {
            writer.record(&record?)?;
        }
    } else if !arguments.summary {
        for transaction in journal.transactions() {
            writer.transaction(&transaction?)?;
        }
    }
    writer.tail(report.as_ref())?;
    Ok(messages.finish())
}

/// Writes records and transactions as they are read.
struct LogWriter<'s> {
    out: io::BufWriter<Stdout>,
    json: bool,
    verbose: bool,
    messages: &'s Messages,
    /// Separator before the next element of the JSON array.
    separator: &'static [u8],
}

fn lsn(lsn: Lsn) -> String {
    format!("{}:{}", lsn.cycle(), lsn.block())
}

/// Text of an item. It starts with the type, without the key.
fn item_text(fields: &LogFields) -> String {
    let text = fields.to_string();
    names::printable(text.strip_prefix("type ").unwrap_or(&text).as_bytes())
}

/// Text about incomplete records.
fn discarded_text(discarded: &DiscardedRecords) -> String {
    let DiscardedRecords { block, records, damage } = discarded;
    format!("{records} incomplete records from block {block} on, ignored ({damage})")
}

/// Fields of the head of a JSON document about a dirty log.
fn dirty_json(dirty: &Dirty, head: Lsn) -> Value {
    json!({
        "state": "dirty",
        "head": lsn(head),
        "tail": lsn(dirty.tail),
        "blocks": dirty.blocks,
        "operations": dirty.operations,
        "complete_records": dirty.records,
        "complete_transactions": dirty.transactions,
        "discarded": dirty.discarded.as_ref().map(discarded_text),
    })
}

impl LogWriter<'_> {
    fn head(&mut self, journal: &Journal<'_>, array: &str) -> anyhow::Result<()> {
        let dirty = journal.dirty();
        if self.json {
            let head = match dirty {
                Some(dirty) => dirty_json(dirty, journal.head()),
                None => json!({ "state": "clean", "head": lsn(journal.head()) }),
            };
            self.out.write_all(&json::begin("log", self.messages.image(), head, array))?;
            return Ok(());
        }
        match dirty {
            None => writeln!(self.out, "clean: head at {}, nothing to replay", lsn(journal.head()))?,
            Some(dirty) => {
                let Dirty { records, operations, transactions, .. } = dirty;
                writeln!(
                    self.out,
                    "dirty: tail at {}, head at {}: {records} records, {operations} operations, {transactions} \
                    transactions",
                    lsn(dirty.tail),
                    lsn(dirty.head)
                )?;
                if let Some(discarded) = &dirty.discarded {
                    writeln!(self.out, "behind the head: {}", discarded_text(discarded))?;
                }
            }
        }
        Ok(())
    }

    /// One element of the JSON array.
    fn element(&mut self, element: &impl Serialize) -> anyhow::Result<()> {
        self.out.write_all(std::mem::replace(&mut self.separator, json::SEPARATOR))?;
        serde_json::to_writer(&mut self.out, element)?;
        Ok(())
    }

    fn record(&mut self, record: &LogRecord) -> anyhow::Result<()> {
        let header = &record.header;
        if self.json {
            return self.element(&json!({
                "lsn": lsn(header.lsn),
                "tail": lsn(header.tail_lsn),
                "operations": header.operations,
                "bytes": header.len,
                "unmount": record.is_unmount(),
            }));
        }
        writeln!(
            self.out,
            "record {}: tail {}, {} operations, {} bytes{}",
            lsn(header.lsn),
            lsn(header.tail_lsn),
            header.operations,
            header.len,
            if record.is_unmount() { ", unmount" } else { "" }
        )?;
        Ok(())
    }

    fn transaction(&mut self, transaction: &RecoveredTransaction) -> anyhow::Result<()> {
        let items = transaction.items().map(|item| {
            describe::item(&item, transaction.lsn).unwrap_or_else(|damage| {
                LogFields::new().text("type", item.kind.name()).text("damage", damage.to_string())
            })
        });
        if self.json {
            return self.element(&json!({
                "tid": transaction.tid,
                "lsn": lsn(transaction.lsn),
                "commit_lsn": lsn(transaction.commit_lsn),
                "bytes": transaction.bytes(),
                "items": items.collect::<Vec<_>>(),
            }));
        }
        writeln!(
            self.out,
            "\ntransaction {:#010x} at {}, committed in {}: {} items, {} bytes",
            transaction.tid,
            lsn(transaction.lsn),
            lsn(transaction.commit_lsn),
            transaction.items().len(),
            transaction.bytes()
        )?;
        for item in items {
            writeln!(self.out, "  {}", item_text(&item))?;
        }
        Ok(())
    }

    fn tail(&mut self, report: Option<&RecoveryReport>) -> anyhow::Result<()> {
        let empty = RecoveryReport::default();
        let report = report.unwrap_or(&empty);
        let files: Vec<u64> = report.files_concerned().into_iter().map(Ino::get).collect();
        if self.json {
            let tail = json!({
                "incomplete_transactions": report.incomplete_transactions,
                "unfinished": report.unfinished.iter().map(describe::intent).collect::<Vec<_>>(),
                "unfinished_files": files,
                "items_not_replayed": report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            });
            self.out.write_all(&json::end(tail))?;
        } else {
            self.tail_text(report, &files)?;
        }
        self.out.flush()?;
        Ok(())
    }

    fn tail_text(&mut self, report: &RecoveryReport, files: &[u64]) -> io::Result<()> {
        let out = &mut self.out;
        if report.incomplete_transactions > 0 {
            writeln!(
                out,
                "\n{} transactions without a commit record: not replayed",
                report.incomplete_transactions
            )?;
        }
        if !report.unfinished.is_empty() {
            writeln!(out, "\nunfinished intents, which a mount would finish:")?;
        }
        for intent in &report.unfinished {
            writeln!(out, "  {}", item_text(&describe::intent(intent)))?;
        }
        if !files.is_empty() {
            let files: Vec<String> = files.iter().map(u64::to_string).collect();
            writeln!(out, "inodes of unfinished intents: {}", files.join(", "))?;
        }
        for problem in &report.problems {
            writeln!(out, "not replayed: {}", names::printable(problem.to_string().as_bytes()))?;
        }
        if self.verbose && report.transactions > 0 {
            writeln!(out, "\nitems: {} replayed or skipped", report.items_total())?;
            for (kind, tally) in &report.items {
                writeln!(
                    out,
                    "  {}: {} replayed, {} newer on disk, {} cancelled, {} quota, {} unsupported, {} damaged",
                    kind.words(),
                    tally.replayed,
                    tally.newer,
                    tally.cancelled,
                    tally.quota,
                    tally.unsupported,
                    tally.failed
                )?;
            }
        }
        Ok(())
    }
}
