//! Log items and other parts of a log as lists of named values ([`LogFields`]), which are printed or serialised.

use std::fmt;

use base::Lsn;
use format::Damage;
use format::btree::rmap as owner;
use format::log::buffer::{self, BufferFormat};
use format::log::exchange::{self, ExchangeIntent};
use format::log::icreate::InodeCreate;
use format::log::inode::{self, InodeFormat, RawLogInode};
use format::log::intent::{self as raw_intent, CountTarget, FreeTarget, MapTarget};
use format::log::item::ItemType;
use format::log::operation::{LogOperation, flags};
use format::log::quota::{DquotFormat, OFF_FLAGS, parse_off};
use format::log::record::RecordHeader;
use format::ondisk::OnDisk;
use format::uuid::UuidText;

use crate::assemble::{RawLogItem, RecoveredTransaction};
use crate::fields::{LogFields, LogValue};
use crate::journal::{Dirty, State};
use crate::locate::DiscardedRecords;
use crate::recovery::{Intent, IntentOperation, RecoveryReport, ReplayCounts};

/// An LSN in text form: cycle and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsnText(pub Lsn);

impl fmt::Display for LsnText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.cycle(), self.0.block())
    }
}

fn lsn(fields: LogFields, name: &'static str, lsn: Lsn) -> LogFields {
    fields.text(name, LsnText(lsn).to_string())
}

/// Describes a record.
pub fn record(header: &RecordHeader) -> LogFields {
    let fields = lsn(lsn(LogFields::new(), "lsn", header.lsn), "tail_lsn", header.tail_lsn);
    fields
        .number("bytes", header.len)
        .number("header_blocks", header.header_blocks)
        .number("operations", header.operations)
        .number("buffer_bytes", header.size)
        .hex("crc", header.crc)
        .text("uuid", UuidText(header.uuid).to_string())
}

/// Describes an operation of a record.
pub fn operation(operation: &LogOperation<'_>) -> LogFields {
    LogFields::new()
        .number("offset", operation.offset)
        .hex("tid", operation.tid)
        .number("bytes", operation.data.len() as u64)
        .flags("flags", operation.flags, flags::ALL)
}

/// Describes a complete transaction.
pub fn transaction(transaction: &RecoveredTransaction) -> LogFields {
    let fields = lsn(LogFields::new(), "lsn", transaction.lsn);
    lsn(fields, "commit_lsn", transaction.commit_lsn)
        .hex("tid", transaction.tid)
        .number("items", transaction.items().len() as u64)
        .number("bytes", transaction.bytes() as u64)
}

/// Describes the state of a log.
pub fn state(state: &State) -> LogFields {
    match state {
        State::Clean { head, discarded } => {
            let fields = LogFields::new().text("state", "clean");
            with_discarded(lsn(fields, "head", *head), discarded.as_ref())
        }
        State::Dirty(dirty) => {
            let fields = lsn(LogFields::new().text("state", "dirty"), "head", dirty.head);
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

fn with_discarded(fields: LogFields, discarded: Option<&DiscardedRecords>) -> LogFields {
    let Some(discarded) = discarded else { return fields };
    let list = LogFields::new()
        .number("block", discarded.block)
        .number("records", discarded.records)
        .text("why", discarded.damage.to_string());
    fields.with("discarded", LogValue::List(vec![list]))
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

/// Describes a recovery.
pub fn report(report: &RecoveryReport) -> LogFields {
    let items = report.items.iter().map(|(kind, tally)| {
        let ReplayCounts { replayed, newer, cancelled, quota, unsupported, failed } = *tally;
        let counts = [
            ("replayed", replayed),
            ("newer", newer),
            ("cancelled", cancelled),
            ("quota", quota),
            ("unsupported", unsupported),
            ("failed", failed),
        ];
        // Most counts are zero and are left out.
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts.fold(LogFields::new().text("type", kind.name()), |fields, (name, count)| {
            fields.number(name, count)
        })
    });
    let files = report.files_concerned().into_iter().map(|ino| LogFields::new().number("ino", ino.get()));
    let problems =
        report.problems.iter().map(|problem| LogFields::new().text("problem", problem.to_string()));
    LogFields::new()
        .number("transactions", report.transactions)
        .number("incomplete_transactions", report.incomplete_transactions as u64)
        .with("items", LogValue::List(items.collect()))
        .with("unfinished", LogValue::List(report.unfinished.iter().map(intent).collect()))
        .with("files_concerned", LogValue::List(files.collect()))
        .number("problems_total", report.problems_total)
        .with("problems", LogValue::List(problems.collect()))
}

/// Describes a log item: `type`, then fields of that type.
///
/// # Errors
/// The item is malformed.
pub fn item(item: &RawLogItem<'_>, lsn: base::Lsn) -> Result<LogFields, Damage> {
    let region = item.region(0);
    let fields = LogFields::new().text("type", item.kind.name());
    Ok(match item.kind {
        ItemType::Buffer => describe_buffer(fields, &BufferFormat::parse(region)?),
        ItemType::Inode => {
            describe_inode(fields, &InodeFormat::parse(region)?, RawLogInode::view(item.region(1)))
        }
        ItemType::InodeCreate => describe_create(fields, &InodeCreate::parse(region)?),
        ItemType::Dquot => {
            let DquotFormat { id, daddr, sectors, offset } = DquotFormat::parse(region)?;
            let fields = fields.number("id", id).hex("daddr", daddr.get());
            fields.number("sectors", sectors).number("offset", offset)
        }
        ItemType::QuotaOff => fields.flags("quotas", parse_off(region)?, OFF_FLAGS),
        kind if kind.answers().is_some() => fields.hex("id", raw_intent::parse_done(region)?),
        _ => match Intent::parse(item, lsn)? {
            Some(found) => intent(&found),
            None => fields.number("regions", item.len() as u64),
        },
    })
}

fn describe_buffer(fields: LogFields, format: &BufferFormat<'_>) -> LogFields {
    let logged: usize = format.runs().map(|run| run.len).sum();
    fields
        .text("holds", format.kind().words())
        .hex("daddr", format.daddr.get())
        .number("sectors", format.sectors)
        .flags("flags", format.flags & ((1 << buffer::flags::KIND_SHIFT) - 1), buffer::flags::ALL)
        .number("logged_bytes", logged as u64)
}

fn describe_inode(fields: LogFields, format: &InodeFormat, core: Option<&RawLogInode>) -> LogFields {
    let fields = fields
        .number("ino", format.ino.get())
        .flags("fields", format.fields, inode::fields::ALL)
        .number("data_bytes", format.data_bytes)
        .number("attr_bytes", format.attr_bytes)
        .hex("daddr", format.daddr.get())
        .number("offset", format.offset);
    let Some(core) = core else { return fields };
    let fields = fields
        .text("mode", format!("{:#o}", core.mode))
        .number("links", core.nlink.get())
        .number("uid", core.uid.get())
        .number("gid", core.gid.get())
        .number("size", core.size.get())
        .number("blocks", core.nblocks.get())
        .number("generation", core.generation.get());
    if format.fields & inode::fields::DEVICE != 0 { fields.hex("rdev", format.rdev) } else { fields }
}

fn describe_create(fields: LogFields, create: &InodeCreate) -> LogFields {
    fields
        .number("ag", create.ag.get())
        .hex("block", create.block.get())
        .number("inodes", create.count)
        .number("inode_bytes", create.inode_bytes)
        .number("blocks", create.blocks)
        .hex("generation", create.generation)
}

/// Describes an intent.
pub fn intent(described: &Intent) -> LogFields {
    let fields = LogFields::new().text("type", described.kind.name()).hex("id", described.id);
    match &described.body {
        IntentOperation::Free(targets) => fields.with("extents", list(targets, describe_free)),
        IntentOperation::Refcount(targets) => fields.with("extents", list(targets, describe_count)),
        IntentOperation::Rmap(targets) => fields.with(
            "maps",
            list(targets, |t| describe_map(t, raw_intent::rmap::operation, raw_intent::rmap::FLAGS)),
        ),
        IntentOperation::Bmap(targets) => fields.with(
            "maps",
            list(targets, |t| describe_map(t, raw_intent::bmap::operation, raw_intent::bmap::FLAGS)),
        ),
        IntentOperation::Attr(change) => fields
            .number("ino", change.ino.get())
            .text("operation", change.operation.words())
            .with("name", LogValue::Name(change.name.clone()))
            .number("value_bytes", change.value.len() as u64),
        IntentOperation::Exchange(exchange) => describe_exchange(fields, exchange),
    }
}

fn list<T>(targets: &[T], describe: impl Fn(&T) -> LogFields) -> LogValue {
    LogValue::List(targets.iter().map(describe).collect())
}

fn describe_free(target: &FreeTarget) -> LogFields {
    LogFields::new().hex("start", target.start.get()).number("blocks", target.blocks)
}

fn describe_count(target: &CountTarget) -> LogFields {
    let operation = raw_intent::refcount::operation(target.operation()).unwrap_or("unknown operation");
    LogFields::new()
        .text("operation", operation)
        .hex("start", target.start.get())
        .number("blocks", target.blocks)
}

fn describe_map(
    target: &MapTarget,
    operation: fn(u32) -> Option<&'static str>,
    flags: &[(u32, &'static str)],
) -> LogFields {
    let fields =
        LogFields::new().text("operation", operation(target.operation()).unwrap_or("unknown operation"));
    // Metadata has negative owners, inodes have not.
    let fields = match target.owner as i64 {
        metadata @ owner::OWNER_COW..=owner::OWNER_NULL => fields.with("owner", LogValue::Signed(metadata)),
        _ => fields.number("ino", target.owner),
    };
    fields
        .hex("start", target.start.get())
        .number("offset", target.offset.get())
        .number("blocks", target.blocks)
        .flags("flags", target.flags & !0xff, flags)
}

fn describe_exchange(fields: LogFields, exchange: &ExchangeIntent) -> LogFields {
    let ([ino1, ino2], [offset1, offset2], [size1, size2]) =
        (exchange.files, exchange.offsets, exchange.sizes);
    fields
        .number("ino1", ino1.get())
        .number("ino2", ino2.get())
        .number("offset1", offset1.get())
        .number("offset2", offset2.get())
        .number("blocks", exchange.blocks)
        .flags("flags", exchange.flags, exchange::flags::ALL)
        .number("size1", size1)
        .number("size2", size2)
}
