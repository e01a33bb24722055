//! Log items as lists of named values ([`LogFields`]), which are printed or serialised.

use format::Damage;
use format::btree::rmap as owner;
use format::log::buffer::{self, BufferFormat};
use format::log::exchange::{self, ExchangeIntent};
use format::log::icreate::InodeCreate;
use format::log::inode::{self, InodeFormat, RawLogInode};
use format::log::intent::{self as raw_intent, CountTarget, FreeTarget, MapTarget};
use format::log::item::ItemType;
use format::log::quota::{DquotFormat, OFF_FLAGS, parse_off};
use format::ondisk::OnDisk;

use crate::assemble::RawLogItem;
use crate::fields::{LogFields, LogValue};
use crate::recovery::{Intent, IntentOperation};

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
