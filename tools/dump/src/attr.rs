//! Extended attributes: within the inode, leaves, nodes, and blocks of values.

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
use crate::shown::Shown;
use crate::types::Type;
use crate::value::{Struct, Table, Value};

/// Attributes within the inode, and whether a verifier believes them.
pub fn shortform(bytes: &[u8], geometry: &Geometry) -> (Struct, Result<(), Damage>) {
    let header = fields::structure::<AttrShortformHeader>(Source::new(bytes));
    let count = AttrShortformHeader::view(bytes).map_or(0, |raw| raw.count);
    let mut rest = bytes.get(AttrShortformHeader::SIZE..).unwrap_or(&[]);
    let list: Vec<Value> = (0..count).map_while(|_| shortform_entry(&mut rest)).map(Value::from).collect();
    let verdict = AttrShortform::verify(bytes, geometry).and_then(|attrs| attrs.audit());
    (Struct::from([("hdr", Value::from(header)), ("list", Value::List(list))]), verdict)
}

/// Takes one attribute off the front.
fn shortform_entry(rest: &mut &[u8]) -> Option<Struct> {
    let header = AttrShortformEntry::view(rest)?;
    let behind = rest.get(AttrShortformEntry::SIZE..)?;
    let (name, behind) = behind.split_at_checked(header.namelen.into())?;
    let (value, behind) = behind.split_at_checked(header.valuelen.into())?;
    let mut fields = Struct::from([
        ("namelen", Value::Uint(header.namelen.into())),
        ("valuelen", Value::Uint(header.valuelen.into())),
        ("root", flag(header.flags, flags::ROOT)),
        ("secure", flag(header.flags, flags::SECURE)),
        ("parent", flag(header.flags, flags::PARENT)),
        ("name", Value::Text(name.to_vec())),
    ]);
    fields.append(value_fields(value, header.flags));
    *rest = behind;
    Some(fields)
}

fn flag(bits: u8, mask: u8) -> Value {
    Value::bit(bits.into(), mask.into())
}

/// The value of an attribute; of a parent pointer, what it says.
fn value_fields(value: &[u8], bits: u8) -> Struct {
    match value {
        [] => Struct::new(),
        _ if bits & flags::PARENT != 0 && value.len() == ParentRecord::SIZE => {
            Struct::from([("parent_dir", fields::structure::<ParentRecord>(Source::new(value)).into())])
        }
        _ => Struct::from([("value", Value::Text(value.to_vec()))]),
    }
}

/// A block of the attribute fork, of whichever kind its magic says. A verifier of values asks for where in its value a
/// block lies, and how long that is; only the block itself can be asked here.
pub fn block(bytes: &[u8], geometry: &Geometry, at: ForkBlock) -> Shown {
    let whole = bytes.get(..geometry.block_size as usize).unwrap_or(bytes);
    if whole.get(..4).map(big_endian) == Some(remote::MAGIC.into()) {
        let (header, data) = payload(whole);
        let fields = Struct::from([("hdr", Value::from(header)), ("data", data)]);
        let (offset, length) = claimed_place(whole);
        let verdict = remote::verify(whole, geometry, at, offset, length);
        return Shown::new(Type::Attr, fields).verified(verdict);
    }
    match dabtree::magic(whole) {
        Some(leaf::MAGIC) => leaf_block(whole, geometry, at),
        Some(NODE_MAGIC) => {
            let mut fields = Struct::new();
            dir::node(whole, ["hdr", "btree"], &mut fields);
            let verdict =
                DaNode::verify(whole, geometry, DaTree::Attr, at, None).and_then(|node| node.audit());
            Shown::new(Type::Attr, fields).verified(verdict)
        }
        _ => crate::headers::raw(whole).verified(AttrLeaf::verify(whole, geometry, at).map(|_| ())),
    }
}

/// A run of blocks of a symbolic link's target: all of `bytes`.
pub fn symlink_block(bytes: &[u8], geometry: &Geometry, at: ForkBlock) -> Shown {
    let (mut fields, data) = payload(bytes);
    fields.push("data", data);
    let (offset, length) = claimed_place(bytes);
    let verdict = symlink::verify(bytes, geometry, at, offset, length);
    Shown::new(Type::Symlink, fields).verified(verdict)
}

/// The header of a block of bytes, and the bytes, as far as the block holds them.
fn payload(whole: &[u8]) -> (Struct, Value) {
    let header = fields::structure::<RemoteBlockHeader>(Source::new(whole));
    let room = whole.get(RemoteBlockHeader::SIZE..).unwrap_or(&[]);
    let count = RemoteBlockHeader::view(whole).map_or(0, |raw| raw.bytes.get() as usize);
    (header, Value::Text(room.get(..count).unwrap_or(room).to_vec()))
}

/// Where in a value a block says that its bytes belong, and the least length of that value.
fn claimed_place(whole: &[u8]) -> (u32, u32) {
    RemoteBlockHeader::view(whole).map_or((0, 0), |raw| {
        let (offset, bytes) = (raw.offset.get(), raw.bytes.get());
        (offset, offset.saturating_add(bytes))
    })
}

fn leaf_block(whole: &[u8], geometry: &Geometry, at: ForkBlock) -> Shown {
    let mut head = Struct::from([("info", dir::info(whole).into())]);
    head.append(leaf_header(whole));
    let mut fields = Struct::from([("hdr", head.into())]);
    let count = whole.get(BlkInfo::SIZE..).and_then(AttrLeafHeader::view).map_or(0, |raw| raw.count.get());
    let room = whole.get(leaf::HEADER_SIZE..).unwrap_or(&[]);
    let most = room.len() / AttrLeafEntry::SIZE;
    let entries = AttrLeafEntry::view_array(room, usize::from(count).min(most)).unwrap_or(&[]);
    fields.push("entries", Value::Table(entry_table(entries)));
    let names = entries.iter().map(|entry| named_value(whole, entry).into()).collect();
    fields.push("nvlist", Value::List(names));
    let verdict = AttrLeaf::verify(whole, geometry, at).and_then(|leaf| leaf.audit());
    Shown::new(Type::Attr, fields).verified(verdict)
}

/// The leaf's own header, with its three free regions as a table.
fn leaf_header(whole: &[u8]) -> Struct {
    let mut fields = fields::structure::<AttrLeafHeader>(Source::new(whole).skip(BlkInfo::SIZE));
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

/// The name that an entry leads to, with its value or where that lies. Empty where it leads out of the block.
fn named_value(whole: &[u8], entry: &AttrLeafEntry) -> Struct {
    let rest = whole.get(usize::from(entry.nameidx.get())..).unwrap_or(&[]);
    let local = entry.flags & flags::LOCAL != 0;
    let (mut fields, size, namelen, valuelen) = match (local, LocalName::view(rest), RemoteName::view(rest)) {
        (true, Some(raw), _) => {
            let fields = fields::structure::<LocalName>(Source::new(rest));
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
    let name = rest.get(size..).and_then(|behind| behind.split_at_checked(namelen.into()));
    if let Some((name, behind)) = name {
        fields.push("name", Value::Text(name.to_vec()));
        fields.append(value_fields(behind.get(..valuelen).unwrap_or(behind), entry.flags));
    }
    fields
}
