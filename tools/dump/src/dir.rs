//! Directories: shortform, and directory blocks of all types.

use format::dabtree::{BlkInfo, DaNode, DaTree, NODE_MAGIC, NodeEntry, NodeHeader};
use format::dir::data::{self, BestFreeTable, BlockTail, DataBlock, EntryHeader, FREE_TAG, UnusedHeader};
use format::dir::free::{self, FreeBlock, FreeHeader};
use format::dir::leaf::{self, DirLeaf, LEAF1_MAGIC, LEAFN_MAGIC, LeafEntry, LeafHeader, LeafTail};
use format::dir::shortform::{ShortformEntry, ShortformHeader};
use format::dir::{DirHeader, entry_size};
use format::ondisk::OnDisk;
use format::{ForkBlock, Geometry};

use crate::fields::{self, Source, big_endian};
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Array, Struct, Table, Value};

/// A shortform directory.
pub fn shortform(bytes: &[u8], geometry: &Geometry) -> Struct {
    let mut header = fields::decode::<ShortformHeader>(Source::new(bytes));
    let (count, wide) = ShortformHeader::view(bytes).map_or((0, false), |raw| (raw.count, raw.i8count > 0));
    let mut cursor = Cursor { rest: bytes.get(ShortformHeader::SIZE..).unwrap_or(&[]) };
    if let Some(parent) = cursor.inumber(wide) {
        header.push("parent", parent);
    }
    let list: Vec<Value> = (0..count).map_while(|_| cursor.entry(wide, geometry)).map(Value::from).collect();
    Struct::from([("hdr", header.into()), ("list", Value::List(list))])
}

/// The part of a shortform directory that was not yet decoded.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn inumber(&mut self, wide: bool) -> Option<Value> {
        let (name, size) = if wide { ("i8", 8) } else { ("i4", 4) };
        let number = Value::Uint(big_endian(self.take(size)?));
        Some(Struct::from([(name, number)]).into())
    }

    fn entry(&mut self, wide: bool, geometry: &Geometry) -> Option<Struct> {
        let mut fields = fields::decode::<ShortformEntry>(Source::new(self.rest));
        let header = self.take(ShortformEntry::SIZE).and_then(ShortformEntry::view)?;
        fields.push("name", Value::Text(self.take(header.namelen.into())?.to_vec()));
        let ftype = if geometry.features.ftype() { Some(self.take(1)?) } else { None };
        fields.push("inumber", self.inumber(wide)?);
        if let Some(ftype) = ftype {
            fields.push("filetype", Value::Uint(big_endian(ftype)));
        }
        Some(fields)
    }
}

/// A directory block; the magic number selects its type.
pub fn block(bytes: &[u8], geometry: &Geometry, at: ForkBlock) -> Structure {
    let whole = bytes.get(..geometry.dir_block_size as usize).unwrap_or(bytes);
    match whole.get(..4).map(big_endian) {
        Some(magic) if magic == u64::from(data::BLOCK_MAGIC) => return entries(whole, geometry, at, true),
        Some(magic) if magic == u64::from(data::DATA_MAGIC) => return entries(whole, geometry, at, false),
        Some(magic) if magic == u64::from(free::MAGIC) => return free_block(whole, geometry, at),
        _ => {}
    }
    match format::dabtree::magic(whole) {
        Some(LEAF1_MAGIC | LEAFN_MAGIC) => leaf_block(whole, geometry, at),
        Some(NODE_MAGIC) => {
            let mut fields = Struct::new();
            node(whole, ["nhdr", "nbtree"], &mut fields);
            let verdict =
                DaNode::verify(whole, geometry, DaTree::Dir, at, None).and_then(|node| node.audit());
            Structure::new(Type::Dir, fields).with_check(verdict)
        }
        _ => crate::headers::raw(whole).with_check(DataBlock::verify(whole, geometry, at).map(|_| ())),
    }
}

/// A block of entries; in block format it also has leaf entries.
fn entries(whole: &[u8], geometry: &Geometry, at: ForkBlock, is_block_format: bool) -> Structure {
    let [header, list] = if is_block_format { ["bhdr", "bu"] } else { ["dhdr", "du"] };
    let source = Source::new(whole);
    let mut head = Struct::from([("hdr", fields::decode::<DirHeader>(source).into())]);
    head.append(fields::decode::<BestFreeTable>(source.skip(DirHeader::SIZE)));
    let mut fields = Struct::from([(header, head.into())]);
    let tail_at = whole.len().saturating_sub(BlockTail::SIZE);
    let (end, leaf) = if is_block_format { split_leaf(whole, tail_at) } else { (whole.len(), &[][..]) };
    fields.push(list, Value::List(regions(whole.get(..end).unwrap_or(whole), geometry)));
    if is_block_format {
        fields.push("bleaf", records::<LeafEntry>(leaf));
        fields.push("btail", fields::decode::<BlockTail>(source.skip(tail_at)).into());
    }
    let verdict = DataBlock::verify(whole, geometry, at).and_then(|data| data.audit());
    Structure::new(Type::Dir, fields).with_check(verdict)
}

/// The end of the entries of a directory in block format, and its leaf entries.
fn split_leaf(whole: &[u8], tail_at: usize) -> (usize, &[u8]) {
    let count = whole.get(tail_at..).and_then(BlockTail::view).map_or(0, |tail| tail.count.get() as usize);
    let start = count.checked_mul(LeafEntry::SIZE).and_then(|size| tail_at.checked_sub(size));
    let start = start.filter(|start| *start >= data::HEADER_SIZE).unwrap_or(tail_at);
    (start, whole.get(start..tail_at).unwrap_or(&[]))
}

/// Entries and unused regions, up to the first one with an invalid length.
fn regions(bytes: &[u8], geometry: &Geometry) -> Vec<Value> {
    let mut list = Vec::new();
    let mut at = data::HEADER_SIZE;
    while let Some(size) = region(bytes, at, geometry, &mut list) {
        at += size;
    }
    let rest = bytes.get(at..).unwrap_or(&[]);
    if !rest.is_empty() {
        list.push(Struct::from([("unreadable", Value::Bytes(rest.to_vec()))]).into());
    }
    list
}

/// Decodes the region at `at` into `list`. Returns its size, at least 8.
fn region(bytes: &[u8], at: usize, geometry: &Geometry, list: &mut Vec<Value>) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let unused = UnusedHeader::view(rest)?;
    let free = unused.freetag.get() == FREE_TAG;
    let (mut fields, size) = if free {
        (fields::decode::<UnusedHeader>(Source::new(rest)), usize::from(unused.length.get()))
    } else {
        let name_length = usize::from(EntryHeader::view(rest)?.namelen);
        (entry(rest, name_length, geometry)?, entry_size(name_length, geometry))
    };
    if size < 8 || !size.is_multiple_of(8) {
        return None;
    }
    let tag = rest.get(..size)?.get(size - 2..)?;
    fields.push("tag", Value::Hex(big_endian(tag)));
    list.push(fields.into());
    Some(size)
}

fn entry(rest: &[u8], name_length: usize, geometry: &Geometry) -> Option<Struct> {
    let mut fields = fields::decode::<EntryHeader>(Source::new(rest));
    let end = EntryHeader::SIZE + name_length;
    fields.push("name", Value::Text(rest.get(EntryHeader::SIZE..end)?.to_vec()));
    if geometry.features.ftype() {
        fields.push("filetype", Value::Uint((*rest.get(end)?).into()));
    }
    Some(fields)
}

fn leaf_block(whole: &[u8], geometry: &Geometry, at: ForkBlock) -> Structure {
    let source = Source::new(whole);
    let mut head = Struct::from([("info", info(whole).into())]);
    head.append(fields::decode::<LeafHeader>(source.skip(BlkInfo::SIZE)));
    let mut fields = Struct::from([("lhdr", head.into())]);
    let mut end = whole.len();
    let is_only_leaf = format::dabtree::magic(whole) == Some(LEAF1_MAGIC);
    let tail_at = end.saturating_sub(LeafTail::SIZE);
    if is_only_leaf {
        let bests = whole.get(tail_at..).and_then(LeafTail::view).map_or(0, |tail| tail.bestcount.get());
        let start = (bests as usize).checked_mul(2).and_then(|size| tail_at.checked_sub(size));
        end = start.filter(|start| *start >= leaf::HEADER_SIZE).unwrap_or(tail_at);
        fields.push("lbests", hex_numbers(whole.get(end..tail_at).unwrap_or(&[])));
    }
    let count = whole.get(BlkInfo::SIZE..).and_then(LeafHeader::view).map_or(0, |raw| raw.count.get());
    let body = whole.get(leaf::HEADER_SIZE..end).unwrap_or(&[]);
    let size = (usize::from(count) * LeafEntry::SIZE).min(body.len());
    fields.push("lents", records::<LeafEntry>(body.get(..size).unwrap_or(body)));
    if is_only_leaf {
        fields.push("ltail", fields::decode::<LeafTail>(source.skip(tail_at)).into());
    }
    let verdict = DirLeaf::verify(whole, geometry, at).and_then(|leaf| leaf.audit());
    Structure::new(Type::Dir, fields).with_check(verdict)
}

fn free_block(whole: &[u8], geometry: &Geometry, at: ForkBlock) -> Structure {
    let source = Source::new(whole);
    let mut head = Struct::from([("hdr", fields::decode::<DirHeader>(source).into())]);
    head.append(fields::decode::<FreeHeader>(source.skip(DirHeader::SIZE)));
    let count = whole.get(DirHeader::SIZE..).and_then(FreeHeader::view).map_or(0, |raw| raw.nvalid.get());
    let body = whole.get(free::HEADER_SIZE..).unwrap_or(&[]);
    let bests = body.get(..(count as usize).saturating_mul(2)).unwrap_or(body);
    let fields = Struct::from([("fhdr", Value::from(head)), ("fbests", hex_numbers(bests))]);
    Structure::new(Type::Dir, fields).with_check(FreeBlock::verify(whole, geometry, at).map(|_| ()))
}

/// The header of nodes and leaves. `hdr` contains the fields that version 4 also has, as in `xfs_db`.
pub fn info(whole: &[u8]) -> Struct {
    fields::decode::<BlkInfo>(Source::new(whole)).nest_before("crc", "hdr")
}

/// A node of a hash btree. `header` and `entries` are the names of its parts, which differ between directories and
/// attributes.
pub fn node(whole: &[u8], [header, entries]: [&'static str; 2], fields: &mut Struct) {
    let mut head = Struct::from([("info", info(whole).into())]);
    head.append(fields::decode::<NodeHeader>(Source::new(whole).skip(BlkInfo::SIZE)));
    fields.push(header, head.into());
    let count = whole.get(BlkInfo::SIZE..).and_then(NodeHeader::view).map_or(0, |raw| raw.count.get());
    let body = whole.get(BlkInfo::SIZE + NodeHeader::SIZE..).unwrap_or(&[]);
    let size = (usize::from(count) * NodeEntry::SIZE).min(body.len());
    fields.push(entries, Value::Table(table::<NodeEntry>(body.get(..size).unwrap_or(body))));
}

/// Consecutive records as a table.
pub fn table<R: OnDisk>(bytes: &[u8]) -> Table {
    let row = |record| {
        let fields = fields::decode::<R>(Source::new(record));
        fields.0.into_iter().map(|(_, value)| value).collect()
    };
    let columns = R::FIELDS.iter().map(|field| field.name).collect();
    Table { first: 0, columns, rows: bytes.chunks_exact(R::SIZE.max(1)).map(row).collect() }
}

/// Consecutive records as a list, printed with one field per line.
fn records<R: OnDisk>(bytes: &[u8]) -> Value {
    let record = |record| Value::from(fields::decode::<R>(Source::new(record)));
    Value::List(bytes.chunks_exact(R::SIZE.max(1)).map(record).collect())
}

fn hex_numbers(bytes: &[u8]) -> Value {
    let items = bytes.chunks_exact(2).map(|number| Value::Hex(big_endian(number))).collect();
    Value::Array(Array { first: 0, sparse: false, items })
}
