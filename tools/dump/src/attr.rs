//! Extended attributes: shortform, leaves, nodes, and remote values.

use format::attr::leaf::{self, AttrLeaf, AttrLeafEntry, AttrLeafHeader, LocalName, RemoteName};
use format::attr::parent::ParentRecord;
use format::attr::shortform::{AttrShortform, AttrShortformEntry, AttrShortformHeader};
use format::attr::{flags, remote};
use format::dabtree::{self, BlkInfo, DaNode, DaTree, NODE_MAGIC};
use format::ondisk::OnDisk;
use format::remote_block::RemoteBlockHeader;
use format::{Damage, ForkBlock, Geometry, symlink};

use crate::dir;
use crate::fields::{self, Source, big_endian};
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Struct, Table, Value};

/// Shortform attributes, and the result of their verifier.
pub fn shortform(bytes: &[u8], geometry: &Geometry) -> (Struct, Result<(), Damage>) {
    let header = fields::decode::<AttrShortformHeader>(Source::new(bytes));
    let count = AttrShortformHeader::view(bytes).map_or(0, |raw| raw.count);
    let mut rest = bytes.get(AttrShortformHeader::SIZE..).unwrap_or(&[]);
    let list: Vec<Value> = (0..count).map_while(|_| shortform_entry(&mut rest)).map(Value::from).collect();
    let result = AttrShortform::verify(bytes, geometry).and_then(|attrs| attrs.audit());
    (Struct::from([("hdr", Value::from(header)), ("list", Value::List(list))]), result)
}

/// Decodes the first attribute and removes it from `rest`.
fn shortform_entry(rest: &mut &[u8]) -> Option<Struct> {
    let header = AttrShortformEntry::view(rest)?;
    let tail = rest.get(AttrShortformEntry::SIZE..)?;
    let (name, tail) = tail.split_at_checked(header.namelen.into())?;
    let (value, tail) = tail.split_at_checked(header.valuelen.into())?;
    let mut fields = Struct::from([
        ("namelen", Value::Uint(header.namelen.into())),
        ("valuelen", Value::Uint(header.valuelen.into())),
        ("root", flag(header.flags, flags::ROOT)),
        ("secure", flag(header.flags, flags::SECURE)),
        ("parent", flag(header.flags, flags::PARENT)),
        ("name", Value::Text(name.to_vec())),
    ]);
    fields.append(value_fields(value, header.flags));
    *rest = tail;
    Some(fields)
}

fn flag(bits: u8, mask: u8) -> Value {
    Value::bit(bits.into(), mask.into())
}

/// The value of an attribute; a parent pointer is decoded.
fn value_fields(value: &[u8], bits: u8) -> Struct {
    match value {
        [] => Struct::new(),
        _ if bits & flags::PARENT != 0 && value.len() == ParentRecord::SIZE => {
            Struct::from([("parent_dir", fields::decode::<ParentRecord>(Source::new(value)).into())])
        }
        _ => Struct::from([("value", Value::Text(value.to_vec()))]),
    }
}

/// A block of the attribute fork; the magic number selects its type. Only the block itself says at which offset of a
/// remote value it is.
pub fn block(bytes: &[u8], geometry: &Geometry, at: ForkBlock) -> Structure {
    let whole = bytes.get(..geometry.block_size as usize).unwrap_or(bytes);
    if whole.get(..4).map(big_endian) == Some(remote::MAGIC.into()) {
        let (header, data) = remote_data(whole);
        let fields = Struct::from([("hdr", Value::from(header)), ("data", data)]);
        let (offset, length) = remote_position(whole);
        let result = remote::verify(whole, geometry, at, offset, length);
        return Structure::new(Type::Attr, fields).with_check(result);
    }
    match dabtree::magic(whole) {
        Some(leaf::MAGIC) => leaf_block(whole, geometry, at),
        Some(NODE_MAGIC) => {
            let mut fields = Struct::new();
            dir::node(whole, ["hdr", "btree"], &mut fields);
            let result =
                DaNode::verify(whole, geometry, DaTree::Attr, at, None).and_then(|node| node.audit());
            Structure::new(Type::Attr, fields).with_check(result)
        }
        _ => crate::headers::raw(whole).with_check(AttrLeaf::verify(whole, geometry, at).map(|_| ())),
    }
}

/// Contiguous blocks of a symlink target: all of `bytes`.
pub fn symlink_block(bytes: &[u8], geometry: &Geometry, at: ForkBlock) -> Structure {
    let (mut fields, data) = remote_data(bytes);
    fields.push("data", data);
    let (offset, length) = remote_position(bytes);
    let result = symlink::verify(bytes, geometry, at, offset, length);
    Structure::new(Type::Symlink, fields).with_check(result)
}

/// The header of a remote block, and the bytes after it.
fn remote_data(whole: &[u8]) -> (Struct, Value) {
    let header = fields::decode::<RemoteBlockHeader>(Source::new(whole));
    let data = whole.get(RemoteBlockHeader::SIZE..).unwrap_or(&[]);
    let count = RemoteBlockHeader::view(whole).map_or(0, |raw| raw.bytes.get() as usize);
    (header, Value::Text(data.get(..count).unwrap_or(data).to_vec()))
}

/// The offset of a remote block in its value, and the minimum length of the value, according to the block.
fn remote_position(whole: &[u8]) -> (u32, u32) {
    RemoteBlockHeader::view(whole).map_or((0, 0), |raw| {
        let (offset, bytes) = (raw.offset.get(), raw.bytes.get());
        (offset, offset.saturating_add(bytes))
    })
}

fn leaf_block(whole: &[u8], geometry: &Geometry, at: ForkBlock) -> Structure {
    let mut header = Struct::from([("info", dir::info(whole).into())]);
    header.append(leaf_header(whole));
    let mut fields = Struct::from([("hdr", header.into())]);
    let count = whole.get(BlkInfo::SIZE..).and_then(AttrLeafHeader::view).map_or(0, |raw| raw.count.get());
    let body = whole.get(leaf::HEADER_SIZE..).unwrap_or(&[]);
    let max = body.len() / AttrLeafEntry::SIZE;
    let entries = AttrLeafEntry::view_array(body, usize::from(count).min(max)).unwrap_or(&[]);
    fields.push("entries", Value::Table(entry_table(entries)));
    let names = entries.iter().map(|entry| named_value(whole, entry).into()).collect();
    fields.push("nvlist", Value::List(names));
    let result = AttrLeaf::verify(whole, geometry, at).and_then(|leaf| leaf.audit());
    Structure::new(Type::Attr, fields).with_check(result)
}

/// The header of a leaf, with its free map as a table.
fn leaf_header(whole: &[u8]) -> Struct {
    let mut fields = fields::decode::<AttrLeafHeader>(Source::new(whole).skip(BlkInfo::SIZE));
    fields.0.retain(|(name, _)| !name.starts_with("freemap"));
    if let Some(raw) = whole.get(BlkInfo::SIZE..).and_then(AttrLeafHeader::view) {
        let rows = raw.freemap().map(|(base, size)| vec![Value::Uint(base.into()), Value::Uint(size.into())]);
        let table = Table { first: 0, columns: vec!["base", "size"], rows: rows.to_vec() };
        fields.push("freemap", Value::Table(table));
    }
    fields
}

fn entry_table(entries: &[AttrLeafEntry]) -> Table {
    let columns = vec!["hashval", "nameidx", "incomplete", "root", "secure", "local", "parent"];
    let row = |entry: &AttrLeafEntry| {
        vec![
            Value::Hex(entry.hashval.get().into()),
            Value::Uint(entry.nameidx.get().into()),
            flag(entry.flags, flags::INCOMPLETE),
            flag(entry.flags, flags::ROOT),
            flag(entry.flags, flags::SECURE),
            flag(entry.flags, flags::LOCAL),
            flag(entry.flags, flags::PARENT),
        ]
    };
    Table { first: 0, columns, rows: entries.iter().map(row).collect() }
}

/// Name and value of an entry, or the block of a remote value. Empty if the entry points out of the block.
fn named_value(whole: &[u8], entry: &AttrLeafEntry) -> Struct {
    let rest = whole.get(usize::from(entry.nameidx.get())..).unwrap_or(&[]);
    let local = entry.flags & flags::LOCAL != 0;
    let (mut fields, size, namelen, valuelen) = match (local, LocalName::view(rest), RemoteName::view(rest)) {
        (true, Some(raw), _) => {
            let fields = fields::decode::<LocalName>(Source::new(rest));
            (fields, LocalName::SIZE, raw.namelen, usize::from(raw.valuelen.get()))
        }
        (false, _, Some(raw)) => {
            let fields = Struct::from([
                ("valueblk", Value::Hex(raw.valueblk.get().into())),
                ("valuelen", Value::Uint(raw.valuelen.get().into())),
                ("namelen", Value::Uint(raw.namelen.into())),
            ]);
            (fields, RemoteName::SIZE, raw.namelen, 0)
        }
        _ => return Struct::new(),
    };
    let name = rest.get(size..).and_then(|tail| tail.split_at_checked(namelen.into()));
    if let Some((name, tail)) = name {
        fields.push("name", Value::Text(name.to_vec()));
        fields.append(value_fields(tail.get(..valuelen).unwrap_or(tail), entry.flags));
    }
    fields
}
