//! Blocks of all btrees. The header of a block determines its layout, also if the verifier reports damage.

use format::btree::{
    BmBt, BnoBt, Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreeHeader, CntBt, FinoBt, InoBt,
    REFCOUNT_COW, RefcountBt, RmapBt, rmap,
};
use format::extent::{Extent, RawExtent};
use format::ondisk::{Field, OnDisk};
use format::{Damage, Geometry};

use crate::fields::{self, Source};
use crate::headers::numbers;
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Table, Value};

/// A block of a btree of any type. `level` is the level that the parent requires, if it is known.
pub fn block(
    kind: Type,
    bytes: &[u8],
    geometry: &Geometry,
    identity: BtreeBlockIdentity,
    level: Option<u16>,
) -> Structure {
    let decode = match kind {
        Type::Bnobt => block_of::<BnoBt>,
        Type::Cntbt => block_of::<CntBt>,
        Type::Inobt => block_of::<InoBt>,
        Type::Finobt => block_of::<FinoBt>,
        Type::Rmapbt => block_of::<RmapBt>,
        Type::Refcountbt => block_of::<RefcountBt>,
        Type::Bmbt => block_of::<BmBt>,
        _ => return crate::headers::raw(bytes),
    };
    decode(kind, bytes, geometry, identity, level)
}

/// The level and the pointers of a node; `None` for a leaf or a truncated block.
pub fn pointers(kind: Type, bytes: &[u8], geometry: &Geometry) -> Option<(u16, Vec<u64>)> {
    let layout = match kind {
        Type::Bnobt => Layout::of::<BnoBt>,
        Type::Cntbt => Layout::of::<CntBt>,
        Type::Inobt => Layout::of::<InoBt>,
        Type::Finobt => Layout::of::<FinoBt>,
        Type::Rmapbt => Layout::of::<RmapBt>,
        Type::Refcountbt => Layout::of::<RefcountBt>,
        Type::Bmbt => Layout::of::<BmBt>,
        _ => return None,
    };
    let layout = layout(bytes, geometry)?;
    let size = layout.pointer_size;
    let list = layout.pointers.chunks_exact(size).map(fields::big_endian).collect();
    (layout.level > 0).then_some((layout.level, list))
}

/// The parts of a block. Counts are limited by its size.
struct Layout<'a> {
    level: u16,
    /// Records of a leaf, keys of a node.
    entries: &'a [u8],
    pointers: &'a [u8],
    pointer_size: usize,
}

impl<'a> Layout<'a> {
    fn of<T: Btree>(bytes: &'a [u8], geometry: &Geometry) -> Option<Self> {
        let bytes = bytes.get(..geometry.block_size as usize)?;
        let header = T::Header::view(bytes)?;
        let rest = bytes.get(T::Header::SIZE..)?;
        let (level, count) = (header.level(), usize::from(header.numrecs()));
        let pointer_size = T::Pointer::SIZE.max(1);
        if level == 0 {
            let entries = rest.get(..count.min(T::max_records(geometry)) * T::Record::SIZE)?;
            return Some(Self { level, entries, pointers: &[], pointer_size });
        }
        let max = T::max_keys(geometry);
        let count = count.min(max);
        let entries = rest.get(..count * T::Key::SIZE)?;
        // Pointers begin after the maximum number of keys.
        let pointers = rest.get(max * T::Key::SIZE..)?.get(..count * pointer_size)?;
        Some(Self { level, entries, pointers, pointer_size })
    }
}

fn block_of<T: Btree>(
    kind: Type,
    bytes: &[u8],
    geometry: &Geometry,
    identity: BtreeBlockIdentity,
    level: Option<u16>,
) -> Structure {
    let whole = bytes.get(..geometry.block_size as usize).unwrap_or(bytes);
    let mut fields = fields::decode::<T::Header>(Source::new(whole));
    if let Some(layout) = Layout::of::<T>(whole, geometry) {
        if layout.level == 0 {
            let records = table::<T::Record>(kind, layout.entries, geometry, 1);
            fields.push("recs", Value::Table(records));
        } else {
            let mut keys = table::<T::Key>(kind, layout.entries, geometry, 1);
            if kind == Type::Cntbt {
                size_first(&mut keys);
            }
            fields.push("keys", Value::Table(keys));
            fields.push("ptrs", numbers(layout.pointers, layout.pointer_size, 1));
        }
    }
    let mut structure = Structure::new(kind, fields);
    let own_level = || T::Header::view(whole).map_or(0, BtreeHeader::level);
    let verified = BtreeBlock::<T>::verify(whole, geometry, identity, level.unwrap_or_else(own_level));
    if let Some(block) = structure.check(verified) {
        structure.check(verify_order(&block.body));
    }
    structure
}

/// Verifies the order of the records or keys of a block.
fn verify_order<T: Btree>(body: &BtreeBlockBody<'_, T>) -> Result<(), Damage> {
    let (field, position) = match body {
        BtreeBlockBody::Leaf(records) => {
            ("recs", records.windows(2).position(|w| matches!(w, [l, r] if !T::in_order(l, r))))
        }
        BtreeBlockBody::Node(keys, _) => {
            ("keys", keys.windows(2).position(|w| matches!(w, [l, r] if !T::keys_in_order(l, r))))
        }
    };
    match position {
        None => Ok(()),
        // Counted from 1, as in the output.
        Some(position) => {
            let found = format!("not in order at {}", position + 2);
            Err(Damage::new(T::NAME, field, "ascending order", found))
        }
    }
}

/// Decodes consecutive records of one type.
pub fn table<R: OnDisk>(kind: Type, bytes: &[u8], geometry: &Geometry, first: usize) -> Table {
    let columns: Vec<_> = vec![0; R::SIZE]
        .chunks_exact(R::SIZE)
        .flat_map(|zeros| row::<R>(kind, zeros, geometry))
        .map(|(name, _)| name)
        .collect();
    let values = |record| row::<R>(kind, record, geometry).into_iter().map(|(_, value)| value).collect();
    Table { first, columns, rows: bytes.chunks_exact(R::SIZE.max(1)).map(values).collect() }
}

type Row = Vec<(&'static str, Value)>;

/// The fields of one record. A field with flags is split.
fn row<R: OnDisk>(kind: Type, record: &[u8], geometry: &Geometry) -> Row {
    if kind == Type::Bmbt
        && let Some(raw) = RawExtent::view(record).filter(|_| R::SIZE == RawExtent::SIZE)
    {
        return extent(raw);
    }
    let mut row = Row::new();
    for field in R::FIELDS {
        let number = number(field, record);
        match (kind, field.name) {
            (Type::Rmapbt, "offset") => {
                row.extend(rmap_offset(number, ["offset", "extentflag", "attrfork", "bmbtblock"]));
            }
            (Type::Rmapbt, "offset_hi") => {
                row.extend(rmap_offset(
                    number,
                    ["offset_hi", "extentflag_hi", "attrfork_hi", "bmbtblock_hi"],
                ));
            }
            (Type::Refcountbt, "startblock") => {
                row.push((field.name, Value::Uint(number & !u64::from(REFCOUNT_COW))));
            }
            (Type::Inobt | Type::Finobt, "holemask" | "count") if !geometry.features.sparse_inodes() => {}
            (Type::Inobt | Type::Finobt, "freecount") if !geometry.features.sparse_inodes() => {
                // Without sparse inodes this is a number of 32 bits, which includes holemask and count.
                let number = record.get(4..8).map_or(number, fields::big_endian);
                row.push((field.name, Value::Uint(number)));
            }
            _ => row.extend(fields::value(field, Source::new(record)).map(|value| (field.name, value))),
        }
    }
    if kind == Type::Refcountbt {
        let startblock = record.get(..4).map_or(0, fields::big_endian);
        row.push(("cowflag", Value::bit(startblock, REFCOUNT_COW.into())));
    }
    row
}

fn number(field: &Field, record: &[u8]) -> u64 {
    record.get(field.offset..field.offset + field.size).map_or(0, fields::big_endian)
}

fn rmap_offset(raw: u64, [offset, unwritten, attr, bmbt]: [&'static str; 4]) -> Row {
    vec![
        (offset, Value::Uint(raw & rmap::OFFSET_MASK)),
        (unwritten, Value::bit(raw, rmap::UNWRITTEN)),
        (attr, Value::bit(raw, rmap::ATTR_FORK)),
        (bmbt, Value::bit(raw, rmap::BMBT_BLOCK)),
    ]
}

fn extent(raw: &RawExtent) -> Row {
    let extent = Extent::decode(raw);
    vec![
        ("startoff", Value::Uint(extent.offset.get())),
        ("startblock", Value::Uint(extent.start.get())),
        ("blockcount", Value::Uint(extent.count)),
        ("extentflag", Value::Uint(extent.unwritten.into())),
    ]
}

/// Swaps the columns of cntbt keys, which `xfs_db` prints with the size first.
fn size_first(keys: &mut Table) {
    keys.columns.reverse();
    keys.rows.iter_mut().for_each(|row| row.reverse());
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::btree::{FreeExtent, RefcountExtent};

    #[test]
    fn flags_of_a_record_are_split() {
        let geometry = crate::testing::geometry();
        let bytes = [0x80, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 1];
        let shared = table::<RefcountExtent>(Type::Refcountbt, &bytes, &geometry, 1);
        assert_eq!(shared.columns, ["startblock", "blockcount", "refcount", "cowflag"]);
        assert_eq!(shared.rows, [[9, 2, 1, 1].map(Value::Uint).to_vec()]);
    }

    #[test]
    fn cntbt_keys_begin_with_the_size() {
        let geometry = crate::testing::geometry();
        let mut keys = table::<FreeExtent>(Type::Cntbt, &[0, 0, 0, 7, 0, 0, 0, 2], &geometry, 1);
        size_first(&mut keys);
        assert_eq!(keys.columns, ["blockcount", "startblock"]);
        assert_eq!(keys.rows, [[2, 7].map(Value::Uint).to_vec()]);
    }

    #[test]
    fn a_count_beyond_the_block_is_limited_and_reported() {
        let geometry = crate::testing::geometry();
        let mut bytes = vec![0; geometry.block_size as usize];
        bytes[..4].copy_from_slice(b"AB3B");
        bytes[6..8].copy_from_slice(&[0xff, 0xff]);
        let identity = BtreeBlockIdentity { ag: base::AgNumber(0), block: base::AgBlock(9), ino: None };
        let structure = block(Type::Bnobt, &bytes, &geometry, identity, Some(0));
        let Some(Value::Table(records)) = structure.fields.get("recs") else { panic!("{structure:?}") };
        assert_eq!(records.rows.len(), BnoBt::max_records(&geometry));
        assert_eq!(structure.objections.len(), 1);
    }
}
